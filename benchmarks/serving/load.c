/* Keeps connections busy with calls of a tool, each sending its next when the last is answered; counts, and takes the times.

   load PORT CONNECTIONS SECONDS own|crossed TOOL ARGUMENTS

   Each connection begins a session. With "own", it keeps to that; with "crossed", it uses the session of a connection that another process of the
   server has taken, as its tool `where` tells: so each call comes to one process, and is answered by another. Prints one line of JSON. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST 1024
#define LONGEST 65536
#define SAMPLES 8000000

struct line {
    int number;
    long where;
    char own[80], session[80], call[4096];
    int length, id_at, id, filled;
    double began;
    char answer[LONGEST];
};

static struct line lines[MOST];
static float *samples;
static long taken, wrong;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void fail(const char *why) {
    fprintf(stderr, "load: %s (%s)\n", why, strerror(errno));
    exit(1);
}

/* Whether the whole answer is there: a head, and a body of its length or the last chunk. */
static int complete(struct line *line) {
    line->answer[line->filled] = 0;
    char *body = strstr(line->answer, "\r\n\r\n");
    if (!body) return 0;
    body += 4;
    char *length = strcasestr(line->answer, "content-length:");
    if (length && length < body) return line->filled >= (body - line->answer) + atoi(length + 15);
    if (strcasestr(line->answer, "transfer-encoding: chunked")) return strstr(body, "0\r\n\r\n") != NULL;
    return 1;
}

static void ask(struct line *line, const char *body) {
    char whole[8192];
    char session[128] = "";
    if (line->session[0]) snprintf(session, sizeof session, "Mcp-Session-Id: %s\r\n", line->session);
    int length = snprintf(whole, sizeof whole,
                          "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json, text/event-stream\r\n"
                          "Content-Type: application/json\r\nMCP-Protocol-Version: 2025-11-25\r\n%sContent-Length: %zu\r\n\r\n%s",
                          session, strlen(body), body);
    if (send(line->number, whole, length, MSG_NOSIGNAL) != length) fail("send");
    line->filled = 0;
    do {
        int some = recv(line->number, line->answer + line->filled, LONGEST - 1 - line->filled, 0);
        if (some <= 0) fail("the server hung up");
        line->filled += some;
    } while (!complete(line));
}

static void enter(struct line *line, int port) {
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    line->number = socket(AF_INET, SOCK_STREAM, 0);
    if (line->number < 0 || connect(line->number, (void *)&there, sizeof there)) fail("connect");
    setsockopt(line->number, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    ask(line, "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\","
              "\"capabilities\":{},\"clientInfo\":{\"name\":\"load\",\"version\":\"1\"}}}");
    char *id = strcasestr(line->answer, "mcp-session-id:");
    if (!id || sscanf(id + 15, " %79[^\r]", line->own) != 1) fail("no session");
    strcpy(line->session, line->own);
    ask(line, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}");
    ask(line, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"where\",\"arguments\":{}}}");
    char *text = strstr(line->answer, "\"text\":\"");
    if (!text) fail("no tool where");
    line->where = atol(text + 8);
}

static void prepare(struct line *line, const char *tool, const char *arguments) {
    char body[2048];
    int length = snprintf(body, sizeof body,
                          "{\"jsonrpc\":\"2.0\",\"id\":100000000,\"method\":\"tools/call\",\"params\":{\"name\":\"%s\",\"arguments\":%s}}",
                          tool, arguments);
    line->length = snprintf(line->call, sizeof line->call,
                            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json, text/event-stream\r\n"
                            "Content-Type: application/json\r\nMCP-Protocol-Version: 2025-11-25\r\nMcp-Session-Id: %s\r\n"
                            "Content-Length: %d\r\n\r\n%s",
                            line->session, length, body);
    line->id_at = (int)(strstr(line->call, "100000000") - line->call);
    line->id = 100000000 + (int)(line - lines) * 800000; /* two that share a session have no id in common */
}

static void begin(struct line *line) {
    char id[16];
    snprintf(id, sizeof id, "%d", ++line->id);
    memcpy(line->call + line->id_at, id, 9);
    line->filled = 0;
    line->began = now();
    if (send(line->number, line->call, line->length, MSG_NOSIGNAL) != line->length) fail("send");
}

static int by_size(const void *one, const void *other) {
    float a = *(const float *)one, b = *(const float *)other;
    return (a > b) - (a < b);
}

int main(int count, char **words) {
    if (count != 7) { fprintf(stderr, "load PORT CONNECTIONS SECONDS own|crossed TOOL ARGUMENTS\n"); return 2; }
    int port = atoi(words[1]), size = atoi(words[2]), crossed = !strcmp(words[4], "crossed");
    double seconds = atof(words[3]);
    if (size < 1 || size > MOST) fail("too many connections");
    samples = malloc(SAMPLES * sizeof *samples);
    for (int i = 0; i < size; i++) enter(&lines[i], port);
    long kinds[2] = {0, 0};
    for (int i = 0; i < size; i++) {
        for (int j = 1; crossed && j < size; j++) {
            struct line *other = &lines[(i + j) % size];
            if (other->where != lines[i].where) { strcpy(lines[i].session, other->own); break; }
        }
        kinds[lines[i].where != lines[0].where]++;
        prepare(&lines[i], words[5], words[6]);
    }
    int poll = epoll_create1(0);
    for (int i = 0; i < size; i++) {
        struct epoll_event wanted = {.events = EPOLLIN, .data.u32 = i};
        if (epoll_ctl(poll, EPOLL_CTL_ADD, lines[i].number, &wanted)) fail("epoll");
    }
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    double start = now(), until = start + seconds;
    int open = size;
    for (int i = 0; i < size; i++) begin(&lines[i]);
    while (open) {
        struct epoll_event ready[64];
        int some = epoll_wait(poll, ready, 64, 30000);
        if (some <= 0) fail("no answer within 30 s");
        for (int k = 0; k < some; k++) {
            struct line *line = &lines[ready[k].data.u32];
            int got = recv(line->number, line->answer + line->filled, LONGEST - 1 - line->filled, 0);
            if (got <= 0) fail("the server hung up");
            line->filled += got;
            if (!complete(line)) continue;
            double t = now();
            char id[16];
            snprintf(id, sizeof id, "%d", line->id);
            if (strncmp(line->answer + 9, "200", 3) || !strstr(line->answer, id) || strstr(line->answer, "\"error\"") ||
                strstr(line->answer, "\"isError\":true"))
                wrong++;
            if (taken < SAMPLES) samples[taken++] = (float)(t - line->began);
            if (t < until) begin(line); else open--;
        }
    }
    double took = now() - start;
    getrusage(RUSAGE_SELF, &after);
    double busy = (after.ru_utime.tv_sec - before.ru_utime.tv_sec) + (after.ru_utime.tv_usec - before.ru_utime.tv_usec) * 1e-6 +
                  (after.ru_stime.tv_sec - before.ru_stime.tv_sec) + (after.ru_stime.tv_usec - before.ru_stime.tv_usec) * 1e-6;
    qsort(samples, taken, sizeof *samples, by_size);
    printf("{\"calls\":%ld,\"wrong\":%ld,\"seconds\":%.4f,\"rate\":%.1f,\"p50\":%.6f,\"p99\":%.6f,\"busy\":%.4f,\"split\":[%ld,%ld]}\n",
           taken, wrong, took, taken / took, samples[taken / 2], samples[taken * 99 / 100], busy / took, kinds[0], kinds[1]);
    for (int i = 0; i < size; i++) close(lines[i].number);
    return 0;
}
