/* The flows of a run, as frames tell them, and their present ranks. */

enum { ETHERNET = 14, SHIM_AT = 42, SHIM_END = 62, NS_PER_US = 1000 };
#define NS_PER_S 1e9
#define MOST_AGE_US 0xffffffffll

/* What ORDER_STEPS knows of a port, and of a flow at a port. */
enum { MOST_HOPS = 16 };
typedef struct {
    const tm_port *port;
    int64_t rank; /* of the most urgent flow */
} ladder_top;
typedef struct {
    const tm_port *port; /* NULL: the flow has not come there */
    uint32_t queue, epoch, has_epoch, waiting, top;
} ladder_hop;

static struct {
    ladder_rung rung;
    ladder_flow *flows;
    uint32_t *places; /* a hash table: by key, one more than the place of the flow; 0: none */
    uint32_t room;    /* of it, a power of two */
    uint64_t looks;
    ladder_counts counts;
    ladder_hop *hops; /* MOST_HOPS of each flow */
    ladder_top *tops;
    uint32_t top_count, top_room;
    void (*started)(uint32_t), (*finished)(uint32_t);
} ladder;

static uint64_t number_at(const uint8_t *p, uint32_t bytes) {
    uint64_t number = 0;
    while (bytes--) number = number << 8 | *p++;
    return number;
}

static void put_number(uint8_t *p, uint64_t number, uint32_t bytes) {
    while (bytes--) {
        p[bytes] = number;
        number >>= 8;
    }
}

static int has_shim(const uint8_t *data, uint32_t length) {
    return length >= SHIM_END && number_at(data + 12, 2) == 0x0800 && data[ETHERNET] == 0x45 && data[23] == 17 &&
           number_at(data + 36, 2) == SHIM_PORT;
}

static int is_ack(const uint8_t *data) {
    return data[SHIM_AT] & FLAG_ACK;
}

static uint32_t epoch_in(const uint8_t *data) {
    return data[SHIM_AT + 1];
}

static int64_t left_in(const uint8_t *data) {
    return number_at(data + SHIM_AT + 8, 4);
}

static uint32_t *place_of(uint32_t key) {
    uint32_t i = key * 2654435769u & (ladder.room - 1);
    while (ladder.places[i] && ladder.flows[ladder.places[i] - 1].key != key) i = (i + 1) & (ladder.room - 1);
    return &ladder.places[i];
}

/* Return the flow of a frame, or of the flow that it acknowledges; NULL: it is of none. */
static ladder_flow *flow_in(const uint8_t *data, uint32_t length) {
    uint32_t place;
    if (!ladder.room || !has_shim(data, length)) return NULL;
    place = *place_of(number_at(data + SHIM_AT + 2, 4));
    return place ? &ladder.flows[place - 1] : NULL;
}

int ladder_begin(
    const ladder_rung *rung, ladder_flow *flows, uint32_t count, void (*started)(uint32_t),
    void (*finished)(uint32_t)) {
    uint32_t i, room = 16;
    while (room < 2 * count) room *= 2;
    free(ladder.places);
    free(ladder.hops);
    free(ladder.tops);
    memset(&ladder, 0, sizeof ladder);
    ladder.places = calloc(room, sizeof *ladder.places);
    ladder.hops = calloc(MOST_HOPS * (count + 1), sizeof *ladder.hops);
    if (!ladder.places || !ladder.hops) return 1;
    ladder.room = room;
    ladder.rung = *rung;
    ladder.flows = flows;
    ladder.started = started;
    ladder.finished = finished;
    for (i = 0; i < count; i++) *place_of(flows[i].key) = 1 + i;
    return 0;
}

ladder_counts ladder_counted(void) {
    return ladder.counts;
}

/* As `deadline_rank` of echelon/planning/rankings/deadline.py. */
double ladder_rank(const ladder_flow *flow, int64_t now_ns, int64_t left_bytes) {
    double now_s = (double)now_ns / NS_PER_S;
    double left_s = flow->left_s * (double)left_bytes;
    return (now_s - flow->due_s + flow->memory_s - left_s) * flow->slope - flow->head_start;
}
