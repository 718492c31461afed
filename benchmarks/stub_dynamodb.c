/*
 * A canned DynamoDB endpoint, much faster than any client, so that a benchmark measures the client alone.
 *
 *   stub_dynamodb DIRECTORY LATENCY_MICROSECONDS [CERTIFICATE KEY]
 *
 * DIRECTORY holds page0.json ... page3.json (whole items), keys.json (their keys alone), made by pages.py. The port it
 * listens on (loopback, chosen by the system) is the first line of its output. With a certificate it speaks TLS.
 *
 * Answers are built once, headers and x-amz-crc32 included, and only sent after that:
 *   Scan, Query             the next page; keys.json with a ProjectionExpression; no items with Select=COUNT
 *   BatchWriteItem          everything accepted
 *   BatchExecuteStatement   as many successes as there are statements
 *   anything else           one write unit consumed (GetItem: an item)
 * One thread, epoll, HTTP/1.1 with keep-alive. Every answer waits LATENCY after its request was complete. Linux only.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
#ifdef WITH_TLS
#include <openssl/err.h>
#include <openssl/ssl.h>
#else
typedef void SSL;
#endif

enum {
    PAGES = 4,
    BATCH = 25,               /* most requests or statements a batch may carry */
    CONNECTIONS = 1024,       /* file descriptors; more are refused */
    REQUEST_BYTES = 16 << 20, /* a BatchWriteItem may be this long */
    TLS_RECORD_BYTES = 16384,
    DELAYED = 4096, /* answers that may wait at the same time; a power of two */
};

typedef struct {
    char *bytes;
    size_t length;
} Answer;

typedef struct {
    int fd;
    SSL *tls;
    char *in;
    size_t in_length, in_capacity;
    const char *out;
    size_t out_left;
    bool busy;        /* an answer is waiting or on its way; the next request stays in `in` */
    bool wants_write; /* EPOLLOUT is armed */
    unsigned generation; /* tells a delayed answer that its connection is a new one with an old number */
} Connection;

typedef struct {
    int64_t at_ns;
    int fd;
    unsigned generation;
    const Answer *answer;
} Delayed;

static Answer pages[PAGES], keys_page, count_page, written, found;
static Answer batch_written[BATCH + 1], statements_done[BATCH + 1];
static Connection connections[CONNECTIONS];
static Delayed delayed[DELAYED];
static unsigned delayed_head, delayed_tail, next_page;
static int epoll_fd, timer_fd;
static int64_t latency_ns;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* ---- answers ---------------------------------------------------------------------------------------------------- */

static uint32_t crc32_of(const char *data, size_t length) {
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < length; i++) {
        crc ^= (uint8_t)data[i];
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0xEDB88320u & -(crc & 1));
    }
    return ~crc;
}

static Answer answer_of(const char *body, size_t length) {
    Answer answer = {malloc(length + 512), 0};
    int head = sprintf(answer.bytes,
                       "HTTP/1.1 200 OK\r\nServer: Server\r\nDate: Mon, 30 Nov 2026 10:00:00 GMT\r\n"
                       "Content-Type: application/x-amz-json-1.0\r\nContent-Length: %zu\r\nConnection: keep-alive\r\n"
                       "x-amzn-RequestId: 5O3T2Q4M0P6N8A1B3C5D7E9F1G2H4I6J8KVV4KQNSO5AEMVJF66Q9ASUAAJG\r\n"
                       "x-amz-crc32: %u\r\n\r\n",
                       length, crc32_of(body, length));
    memcpy(answer.bytes + head, body, length);
    answer.length = head + length;
    return answer;
}

static Answer answer_of_text(const char *text) { return answer_of(text, strlen(text)); }

static Answer answer_of_file(const char *directory, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "rb");
    if (!file) die(path);
    fseek(file, 0, SEEK_END);
    long length = ftell(file);
    rewind(file);
    char *body = malloc(length);
    if (fread(body, 1, length, file) != (size_t)length) die(path);
    fclose(file);
    Answer answer = answer_of(body, length);
    free(body);
    return answer;
}

static void build_batches(void) {
    char body[4096];
    for (int n = 1; n <= BATCH; n++) {
        sprintf(body, "{\"ConsumedCapacity\":[{\"CapacityUnits\":%d.0,\"TableName\":\"t\"}],\"UnprocessedItems\":{}}", n);
        batch_written[n] = answer_of_text(body);
        int end = sprintf(body, "{\"ConsumedCapacity\":[{\"CapacityUnits\":%d.0,\"TableName\":\"t\"}],\"Responses\":[", n);
        for (int i = 0; i < n; i++) end += sprintf(body + end, "%s{\"TableName\":\"t\"}", i ? "," : "");
        sprintf(body + end, "]}");
        statements_done[n] = answer_of_text(body);
    }
}

static void build_answers(const char *directory) {
    for (int i = 0; i < PAGES; i++) {
        char name[32];
        sprintf(name, "page%d.json", i);
        pages[i] = answer_of_file(directory, name);
    }
    keys_page = answer_of_file(directory, "keys.json");
    count_page = answer_of_text(
        "{\"ConsumedCapacity\":{\"CapacityUnits\":128.5,\"TableName\":\"t\"},\"Count\":2000,"
        "\"LastEvaluatedKey\":{\"pk\":{\"S\":\"a\"},\"sk\":{\"S\":\"b\"}},\"ScannedCount\":2000}");
    written = answer_of_text("{\"ConsumedCapacity\":{\"CapacityUnits\":1.0,\"TableName\":\"t\"}}");
    found = answer_of_text(
        "{\"ConsumedCapacity\":{\"CapacityUnits\":0.5,\"TableName\":\"t\"},"
        "\"Item\":{\"pk\":{\"S\":\"a\"},\"sk\":{\"S\":\"b\"}}}");
    build_batches();
}

static int occurrences(const char *text, size_t length, const char *what) {
    size_t size = strlen(what);
    const char *end = text + length;
    int n = 0;
    for (const char *at = text; (at = memmem(at, end - at, what, size)); at += size) n++;
    return n < 1 ? 1 : n > BATCH ? BATCH : n;
}

static const Answer *choose(const char *head, const char *body, size_t length) {
    const char *target = strstr(head, "DynamoDB_20120810.");
    const char *operation = target ? target + strlen("DynamoDB_20120810.") : "";
    if (!strncmp(operation, "Scan", 4) || !strncmp(operation, "Query", 5)) {
        if (memmem(body, length, "\"COUNT\"", 7)) return &count_page;
        if (memmem(body, length, "ProjectionExpression", 20)) return &keys_page;
        return &pages[next_page++ % PAGES];
    }
    if (!strncmp(operation, "BatchWriteItem", 14)) return &batch_written[occurrences(body, length, "Request\":")];
    if (!strncmp(operation, "BatchExecuteStatement", 21))
        return &statements_done[occurrences(body, length, "\"Statement\":")];
    return strncmp(operation, "GetItem", 7) ? &written : &found;
}

/* ---- connections ------------------------------------------------------------------------------------------------ */

static void drop(Connection *c) {
#ifdef WITH_TLS
    if (c->tls) SSL_free(c->tls);
#endif
    close(c->fd);
    c->fd = -1;
    c->tls = NULL;
    c->in_length = c->out_left = 0;
    c->busy = c->wants_write = false;
    c->generation++;
}

/* As read(2): bytes, 0 at the end, -1 with errno EAGAIN when there is nothing yet. */
static ssize_t receive(Connection *c, char *into, size_t room) {
#ifdef WITH_TLS
    if (c->tls) {
        ERR_clear_error(); /* or SSL_get_error reports what another connection left behind */
        int n = SSL_read(c->tls, into, room > INT32_MAX ? INT32_MAX : (int)room);
        if (n > 0) return n;
        int why = SSL_get_error(c->tls, n);
        errno = why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? EAGAIN : ECONNRESET;
        return -1;
    }
#endif
    return recv(c->fd, into, room, 0);
}

static ssize_t transmit(Connection *c) {
#ifdef WITH_TLS
    if (c->tls) {
        size_t n = c->out_left < TLS_RECORD_BYTES ? c->out_left : TLS_RECORD_BYTES;
        ERR_clear_error();
        int sent = SSL_write(c->tls, c->out, (int)n);
        if (sent > 0) return sent;
        int why = SSL_get_error(c->tls, sent);
        errno = why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? EAGAIN : ECONNRESET;
        return -1;
    }
#endif
    return send(c->fd, c->out, c->out_left, MSG_NOSIGNAL);
}

static void arm_write(Connection *c, bool wanted) {
    if (c->wants_write == wanted) return;
    c->wants_write = wanted;
    struct epoll_event event = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.fd = c->fd};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &event);
}

/* Send what can be sent; false when the connection is gone. */
static bool flush(Connection *c) {
    while (c->out_left) {
        ssize_t sent = transmit(c);
        if (sent < 0 && errno == EAGAIN) break;
        if (sent < 0) {
            drop(c);
            return false;
        }
        c->out += sent;
        c->out_left -= sent;
    }
    arm_write(c, c->out_left > 0);
    if (!c->out_left) c->busy = false;
    return true;
}

static bool reply(Connection *c, const Answer *answer) {
    c->out = answer->bytes;
    c->out_left = answer->length;
    c->busy = true;
    return flush(c);
}

static void arm_timer(int64_t at_ns) {
    struct itimerspec when = {.it_value = {at_ns / 1000000000, at_ns % 1000000000}};
    timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

static void delay(Connection *c, const Answer *answer) {
    c->busy = true;
    if (delayed_head == delayed_tail) arm_timer(now_ns() + latency_ns);
    delayed[delayed_tail++ % DELAYED] = (Delayed){now_ns() + latency_ns, c->fd, c->generation, answer};
}

/* Answer the complete requests that `in` holds, one after another. */
static void serve(Connection *c) {
    while (c->fd >= 0 && !c->busy && c->in_length) {
        c->in[c->in_length] = 0;
        char *end = memmem(c->in, c->in_length, "\r\n\r\n", 4);
        if (!end) return;
        *end = 0;
        char *field = strcasestr(c->in, "\r\ncontent-length:");
        size_t head = end - c->in + 4, body = field ? strtoul(field + 17, NULL, 10) : 0;
        const Answer *answer = c->in_length < head + body ? NULL : choose(c->in, c->in + head, body);
        *end = '\r';
        if (!answer) return;
        c->in_length -= head + body;
        memmove(c->in, c->in + head + body, c->in_length);
        if (latency_ns)
            delay(c, answer);
        else
            reply(c, answer);
    }
}

static void read_requests(Connection *c) {
    for (;;) {
        if (c->in_length + 65536 > c->in_capacity) {
            c->in_capacity = c->in_capacity ? c->in_capacity * 2 : 1 << 17;
            if (c->in_capacity > REQUEST_BYTES * 2) return drop(c);
            c->in = realloc(c->in, c->in_capacity + 1); /* + 1: a terminator for strstr */
        }
        size_t room = c->in_capacity - c->in_length;
        ssize_t n = receive(c, c->in + c->in_length, room);
        if (n < 0 && errno == EAGAIN) break;
        if (n <= 0) return drop(c);
        c->in_length += n;
        if (!c->tls && (size_t)n < room) break; /* all of it; saves a call that would say so */
    }
    serve(c);
}

static void send_due(void) {
    uint64_t expirations;
    if (read(timer_fd, &expirations, sizeof expirations) < 0 && errno != EAGAIN) die("timer");
    int64_t now = now_ns();
    while (delayed_head != delayed_tail && delayed[delayed_head % DELAYED].at_ns <= now) {
        Delayed due = delayed[delayed_head++ % DELAYED];
        Connection *c = &connections[due.fd];
        if (c->fd >= 0 && c->generation == due.generation && reply(c, due.answer)) serve(c);
    }
    if (delayed_head != delayed_tail) arm_timer(delayed[delayed_head % DELAYED].at_ns);
}

static void accept_all(int listener, void *tls_context) {
    int fd, one = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        if (fd >= CONNECTIONS) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        Connection *c = &connections[fd];
        c->fd = fd;
#ifdef WITH_TLS
        if (tls_context) {
            c->tls = SSL_new(tls_context);
            SSL_set_fd(c->tls, fd);
            SSL_set_accept_state(c->tls);
        }
#else
        (void)tls_context;
#endif
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
    }
}

static void *tls_context_of(const char *certificate, const char *key) {
#ifdef WITH_TLS
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (SSL_CTX_use_certificate_chain_file(context, certificate) != 1) die(certificate);
    if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1) die(key);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return context;
#else
    (void)certificate, (void)key;
    fprintf(stderr, "built without TLS\n");
    exit(2);
#endif
}

static int listen_on_loopback(void) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (bind(listener, (void *)&address, size) || listen(listener, 512)) die("listen");
    getsockname(listener, (void *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

static void watch(int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event)) die("epoll");
}

static void handle(Connection *c, uint32_t events) {
    if (c->fd < 0) return;
    if (events & EPOLLOUT && c->out_left) {
        if (!flush(c)) return;
        serve(c);
    }
    if (c->fd >= 0 && events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read_requests(c);
}

int main(int count, char **arguments) {
    if (count != 3 && count != 5) {
        fprintf(stderr, "usage: %s DIRECTORY LATENCY_MICROSECONDS [CERTIFICATE KEY]\n", arguments[0]);
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* never outlive the benchmark */
    signal(SIGPIPE, SIG_IGN);         /* OpenSSL writes without MSG_NOSIGNAL */
    build_answers(arguments[1]);
    latency_ns = atoll(arguments[2]) * 1000;
    void *tls_context = count == 5 ? tls_context_of(arguments[3], arguments[4]) : NULL;
    for (int i = 0; i < CONNECTIONS; i++) connections[i].fd = -1;
    epoll_fd = epoll_create1(0);
    timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    int listener = listen_on_loopback();
    watch(timer_fd);
    watch(listener);
    for (;;) {
        struct epoll_event events[64];
        int n = epoll_wait(epoll_fd, events, 64, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == listener)
                accept_all(listener, tls_context);
            else if (fd == timer_fd)
                send_due();
            else
                handle(&connections[fd], events[i].events);
        }
    }
}
