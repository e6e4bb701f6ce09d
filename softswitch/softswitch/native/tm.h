/* The traffic manager of one egress port; softswitch/tm.py says whom it serves, and why. */

enum { TM_QUEUES = 32, TM_LEVELS = 8 };

/* A number of 128 bits without sign. */
typedef struct {
    uint64_t high, low;
} tm_wide;

typedef struct {
    int64_t rate_bps; /* 0: no pacing */
    int64_t free_ns;
    int64_t early; /* the exact instant is free_ns - early / rate_bps */
} tm_pacer;

typedef struct {
    int64_t min_rate_bps, max_rate_bps; /* 0: none */
    int64_t depth_bytes;
    uint32_t level, weight, guaranteed_level, scheduled;
} tm_config;

typedef struct {
    ss_packet *first, *last;
    tm_config config;
    tm_wide start, finish;
    tm_pacer guarantee, shaper;
    int64_t guarantee_credit_ns, shaper_credit_ns;
    uint32_t contending, packets;
    int64_t bytes, peak_bytes;
    uint64_t enqueued_packets, enqueued_bytes, dequeued_packets, dequeued_bytes, dropped_packets, dropped_bytes;
} tm_queue;

/* Queues by number, in some order. */
typedef struct {
    uint32_t count;
    uint8_t queue[TM_QUEUES];
} tm_list;

typedef struct {
    tm_list contenders;
    uint32_t weights;
    tm_wide moment, latest;
} tm_level;

typedef struct {
    tm_pacer line;
    uint32_t queues, busy_levels, packets, is_transparent;
    tm_list held;
    tm_list guaranteed; /* by guaranteed level, the highest first, and in turn within one */
    tm_level level[TM_LEVELS];
    uint64_t unknown_queue_packets;
    tm_queue queue[TM_QUEUES];
} tm_port;

typedef struct {
    ss_packet *packet; /* NULL: nothing leaves now */
    int64_t enqueued_ns;
    uint32_t queue, enq_qdepth, deq_qdepth, guaranteed;
} tm_leaving;

tm_port *tm_new(int64_t rate_bps, uint32_t queues, const tm_config *configs);
void tm_free(tm_port *port);
void tm_set_rate(tm_port *port, int64_t rate_bps, int64_t now_ns);
void tm_configure(tm_port *port, uint32_t queue, const tm_config *config, int64_t now_ns);
/* Removed queues must be empty; added ones get the configuration. */
void tm_set_queues(tm_port *port, uint32_t count, const tm_config *config);
/* Return whether the packet was taken; if not, it is counted and stays the caller's. */
int tm_enqueue(tm_port *port, uint32_t queue, ss_packet *packet, int64_t now_ns);
void tm_dequeue(tm_port *port, int64_t now_ns, tm_leaving *leaving);
/* Return when a packet may leave, from now_ns on; -1: none waits. */
int64_t tm_next_ns(const tm_port *port, int64_t now_ns);
void tm_correct_line(tm_port *port, int64_t extra_bytes);
/* Drop and count all waiting packets; return them as a list. */
ss_packet *tm_clear(tm_port *port);
