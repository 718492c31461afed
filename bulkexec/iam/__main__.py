"""`python -m bulkexec.iam`: writes `iam/*.json` and the README's section anew, in a checkout."""

from pathlib import Path

from bulkexec.iam.documents import generated


def main() -> None:
    """Write every file that differs."""
    root = Path(__file__).resolve().parents[2]
    for path, content in generated(root):
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            path.parent.mkdir(exist_ok=True)
            path.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
