/* A unit that does as little as one can: what comes in at a port goes out of the one whose number differs in the last
   bit, in queue 0, as it is. What a compiled program adds to this is its own cost. */

#include "types.h"
#include "abi.h"

int pthread_mutex_init(void *mutex, const void *attributes);
int pthread_mutex_lock(void *mutex);
int pthread_mutex_unlock(void *mutex);

enum { MOST_BYTES = 1 << 18, POOLED_BYTES = 2048 };

typedef struct {
    ss_packet head;
    uint32_t room;
    uint8_t data[];
} packet;

struct ss_switch {
    uint8_t mutex[128];
    packet *free, *last;
};

ss_switch *ss_new(uint64_t drop_port, uint64_t hash_seed) {
    ss_switch *s = calloc(1, sizeof *s);
    if (s) pthread_mutex_init(s->mutex, NULL);
    return s;
}

void ss_lock(ss_switch *s) { pthread_mutex_lock(s->mutex); }
void ss_unlock(ss_switch *s) { pthread_mutex_unlock(s->mutex); }

void ss_drop(ss_switch *s, ss_packet *given) {
    packet *p = (packet *)given;
    if (p->room > POOLED_BYTES) {
        free(p);
    } else {
        given->next = (ss_packet *)s->free;
        s->free = p;
    }
}

/* Free what egress has handed out, whose bytes were to stay until now. */
static void end_last(ss_switch *s) {
    if (s->last) ss_drop(s, &s->last->head);
    s->last = NULL;
}

void ss_free(ss_switch *s) {
    end_last(s);
    while (s->free) {
        packet *next = (packet *)s->free->head.next;
        free(s->free);
        s->free = next;
    }
    free(s);
}

ss_packet *ss_ingress(ss_switch *s, uint32_t port, const uint8_t *data, uint32_t length, uint64_t now_ns) {
    packet *p = s->free;
    if (length > POOLED_BYTES || !p) {
        uint32_t room = length > POOLED_BYTES ? length : POOLED_BYTES;
        if (length > MOST_BYTES || !(p = calloc(1, sizeof *p + room))) return NULL;
        p->room = room;
    } else {
        s->free = (packet *)p->head.next;
    }
    p->head.next = NULL;
    p->head.port = port ^ 1;
    p->head.queue = 0;
    p->head.length_bytes = length;
    memcpy(p->data, data, length);
    return &p->head;
}

uint32_t ss_egress(ss_switch *s, ss_packet *given, uint64_t enqueued_ns, uint64_t now_ns, uint32_t enq_qdepth,
                   uint32_t deq_qdepth, ss_departure *out, uint32_t room) {
    end_last(s);
    s->last = (packet *)given;
    out->port = given->port;
    out->length = given->length_bytes;
    out->data = s->last->data;
    out->requeue = NULL;
    return 1;
}
