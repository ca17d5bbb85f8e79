/*
 * What MongoDB asks of its storage engine when clients want their writes durable: clients update
 * records, each in a transaction that the engine logs, and wait; a thread flushes the log every
 * PERIOD_MS, and whoever committed before the flush began is answered when it has ended.
 *
 *   wiredtiger-driver DIRECTORY load
 *   wiredtiger-driver DIRECTORY PERIOD_MS SECONDS CLIENTS
 *
 * Prints one line of JSON: durable writes a second, their latency (commit to durable) and that of
 * the flushes. A program of its own because the library (libwiredtiger) is under the GPL.
 */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <wiredtiger.h>

#define RECORDS 100000
#define RECORD_BYTES 1000
#define CLIENTS_MAX 256

/* As mongod 2.6 to 4.2 opens it, with a cache that holds all records. */
static const char *CONFIG =
    "create,cache_size=256MB,log=(enabled=true,archive=true,path=.),"
    "transaction_sync=(enabled=false,method=fsync),checkpoint=(wait=60)";

static WT_CONNECTION *connection;
static struct timespec end;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t flushed = PTHREAD_COND_INITIALIZER;
/* Flushes that have begun, and the last of them that has ended. */
static uint64_t begun, ended;
static int stopping;

struct latencies {
    double *ms;
    size_t count, room;
};

struct client {
    pthread_t thread;
    unsigned seed;
    struct latencies durable;
};

static void fail(const char *what, int error) {
    fprintf(stderr, "wiredtiger-driver: %s: %s\n", what, wiredtiger_strerror(error));
    exit(1);
}

static void must(const char *what, int error) {
    if (error != 0)
        fail(what, error);
}

static double ms_since(const struct timespec *from) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - from->tv_sec) * 1e3 + (now.tv_nsec - from->tv_nsec) / 1e6;
}

static void note(struct latencies *all, double ms) {
    if (all->count == all->room) {
        all->room = all->room ? 2 * all->room : 1024;
        all->ms = realloc(all->ms, all->room * sizeof *all->ms);
        if (all->ms == NULL)
            fail("latencies", ENOMEM);
    }
    all->ms[all->count++] = ms;
}

static int shorter_first(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void print_latencies(const char *name, struct latencies *all) {
    double sum = 0;
    qsort(all->ms, all->count, sizeof *all->ms, shorter_first);
    for (size_t i = 0; i < all->count; i++)
        sum += all->ms[i];
    printf("\"%smean_ms\": %.3f, \"%sp99_ms\": %.3f", name, all->count ? sum / all->count : 0,
           name, all->count ? all->ms[(size_t)(0.99 * (all->count - 1))] : 0);
}

static WT_CURSOR *open_table(WT_SESSION **session, const char *config) {
    WT_CURSOR *cursor;
    must("session", connection->open_session(connection, NULL, NULL, session));
    must("table", (*session)->create(*session, "table:records", "key_format=q,value_format=u"));
    must("cursor", (*session)->open_cursor(*session, "table:records", NULL, config, &cursor));
    return cursor;
}

static int put(WT_SESSION *session, WT_CURSOR *cursor, int64_t key, unsigned *seed) {
    char value[RECORD_BYTES];
    WT_ITEM item = {.data = value, .size = sizeof value};
    int error;
    for (size_t i = 0; i < sizeof value; i++)
        value[i] = (char)rand_r(seed);
    must("begin", session->begin_transaction(session, NULL));
    cursor->set_key(cursor, key);
    cursor->set_value(cursor, &item);
    error = cursor->insert(cursor);
    if (error != 0) {
        must("rollback", session->rollback_transaction(session, NULL));
        return error;
    }
    return session->commit_transaction(session, NULL);
}

static void load(void) {
    WT_SESSION *session;
    WT_CURSOR *cursor = open_table(&session, NULL);
    unsigned seed = 1;
    for (int64_t key = 0; key < RECORDS; key++)
        must("load", put(session, cursor, key, &seed));
    must("checkpoint", session->checkpoint(session, NULL));
}

static void *flush_log(void *argument) {
    const struct timespec period = *(const struct timespec *)argument;
    struct latencies *took = calloc(1, sizeof *took);
    WT_SESSION *session;
    if (took == NULL)
        fail("latencies", ENOMEM);
    must("session", connection->open_session(connection, NULL, NULL, &session));
    for (;;) {
        struct timespec began;
        nanosleep(&period, NULL);
        clock_gettime(CLOCK_MONOTONIC, &began);
        pthread_mutex_lock(&lock);
        int last = stopping;
        uint64_t mine = ++begun;
        pthread_mutex_unlock(&lock);
        must("log_flush", session->log_flush(session, "sync=on"));
        note(took, ms_since(&began));
        pthread_mutex_lock(&lock);
        ended = mine;
        pthread_cond_broadcast(&flushed);
        pthread_mutex_unlock(&lock);
        if (last)
            return took;
    }
}

static void *write_durably(void *argument) {
    struct client *client = argument;
    WT_SESSION *session;
    WT_CURSOR *cursor = open_table(&session, "overwrite=true");
    while (ms_since(&end) < 0) {
        struct timespec began;
        clock_gettime(CLOCK_MONOTONIC, &began);
        int error = put(session, cursor, rand_r(&client->seed) % RECORDS, &client->seed);
        if (error == WT_ROLLBACK)
            continue;
        must("write", error);
        pthread_mutex_lock(&lock);
        for (uint64_t before = begun; ended <= before;)
            pthread_cond_wait(&flushed, &lock);
        pthread_mutex_unlock(&lock);
        note(&client->durable, ms_since(&began));
    }
    return NULL;
}

static void run(double period_ms, double seconds, int count) {
    static struct client clients[CLIENTS_MAX];
    struct timespec period = {.tv_sec = (time_t)(period_ms / 1e3),
                              .tv_nsec = (long)(period_ms * 1e6) % 1000000000};
    struct latencies all = {0}, *flushes;
    struct timespec began;
    pthread_t flusher;
    clock_gettime(CLOCK_MONOTONIC, &began);
    end = began;
    end.tv_sec += (time_t)seconds;
    must("thread", pthread_create(&flusher, NULL, flush_log, &period));
    for (int i = 0; i < count; i++) {
        clients[i].seed = (unsigned)i + 1;
        must("thread", pthread_create(&clients[i].thread, NULL, write_durably, &clients[i]));
    }
    for (int i = 0; i < count; i++) {
        pthread_join(clients[i].thread, NULL);
        for (size_t j = 0; j < clients[i].durable.count; j++)
            note(&all, clients[i].durable.ms[j]);
    }
    double took_s = ms_since(&began) / 1e3;
    pthread_mutex_lock(&lock);
    stopping = 1;
    pthread_mutex_unlock(&lock);
    pthread_join(flusher, (void **)&flushes);
    printf("{\"per_s\": %.1f, ", all.count / took_s);
    print_latencies("", &all);
    printf(", ");
    print_latencies("flush_", flushes);
    printf(", \"flushes\": %zu}\n", flushes->count);
}

int main(int count, char **words) {
    int loads = count == 3 && strcmp(words[2], "load") == 0;
    int clients = count == 5 ? atoi(words[4]) : 0;
    if (!loads && (clients < 1 || clients > CLIENTS_MAX || atof(words[2]) <= 0)) {
        fprintf(stderr, "usage: %s DIRECTORY load | DIRECTORY PERIOD_MS SECONDS CLIENTS\n",
                words[0]);
        return 2;
    }
    must(words[1], wiredtiger_open(words[1], NULL, CONFIG, &connection));
    if (loads)
        load();
    else
        run(atof(words[2]), atof(words[3]), clients);
    must("close", connection->close(connection, NULL));
    return 0;
}
