/* The program `Orders` of conftest.py as a unit in C. */

#include "types.h"
#include "abi.h"

int pthread_mutex_init(void *mutex, const void *attributes);
int pthread_mutex_lock(void *mutex);
int pthread_mutex_unlock(void *mutex);

typedef struct {
    ss_packet head;
    uint32_t rounds, length;
    uint8_t data[];
} waiting;

typedef struct {
    uint32_t port, length;
    uint64_t enqueued_ns, now_ns;
    uint32_t met, leaves;
    uint8_t data[2048];
} seen;

struct ss_switch {
    uint8_t mutex[128];
    uint32_t endless, count, room;
    uint64_t packets;
    seen *left;
    uint8_t sent[4096];
};

ss_switch *ss_new(uint64_t endless, uint64_t room) {
    ss_switch *s = calloc(1, sizeof *s);
    s->left = calloc(room, sizeof *s->left);
    s->room = room;
    s->endless = endless;
    pthread_mutex_init(s->mutex, NULL);
    return s;
}

void ss_free(ss_switch *s) {
    free(s->left);
    free(s);
}

void ss_lock(ss_switch *s) { pthread_mutex_lock(s->mutex); }
void ss_unlock(ss_switch *s) { pthread_mutex_unlock(s->mutex); }
uint64_t orders_packets(ss_switch *s) { return s->packets; }
uint32_t orders_count(ss_switch *s) { return s->count; }
seen *orders_left(ss_switch *s, uint32_t at) { return &s->left[at]; }

ss_packet *ss_ingress(ss_switch *s, uint32_t port, const uint8_t *data, uint32_t length, uint64_t now_ns) {
    ss_packet *first = NULL, **end = &first;
    for (uint32_t copy = 0; copy < data[0]; copy++) {
        waiting *made = calloc(1, sizeof *made + length);
        s->packets++;
        made->head.port = data[1] + copy;
        made->head.queue = data[2];
        made->head.length_bytes = made->length = length;
        memcpy(made->data, data, length);
        *end = &made->head;
        end = &made->head.next;
    }
    return first;
}

void ss_drop(ss_switch *s, ss_packet *packet) {
    s->packets--;
    free(packet);
}

uint32_t ss_egress(ss_switch *s, ss_packet *packet, uint64_t enqueued_ns, uint64_t now_ns, uint32_t met,
                   uint32_t leaves, ss_departure *out, uint32_t room) {
    waiting *of = (waiting *)packet;
    if (s->count < s->room) {
        seen *left = &s->left[s->count++];
        seen entry = {packet->port, of->length, enqueued_ns, now_ns, met, leaves};
        *left = entry;
        memcpy(left->data, of->data, of->length);
    }
    out->port = packet->port;
    out->data = NULL;
    out->requeue = NULL;
    if (s->endless || of->rounds < of->data[3]) {
        of->rounds++;
        packet->next = NULL;
        out->requeue = packet;
        return 1;
    }
    memset(s->sent, 0, of->length + 7);
    memcpy(s->sent, of->data, of->length);
    out->data = s->sent;
    out->length = of->length + (of->data[4] == 2 ? 7 : 0);
    room = of->data[4] != 1;
    ss_drop(s, packet);
    return room;
}
