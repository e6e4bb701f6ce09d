/* The senders and receivers of flows with a shim, at all hosts of a run: transport.py, shim.py and agreement.py, packet
   for packet. */

typedef struct {
    uint16_t port;
    uint8_t version_bits, alone, last, ack, drain;
    uint16_t marked_resent, marked_prompt;
    double memory_unit;
    uint32_t straggler_from, least_frame, ack_frame, most_timeouts, most_backoff, credit_segments;
} shim_constants;

/* What waits at an interface, of one urgency. */
typedef struct {
    uint64_t urgency;
    void *first, *last;
} shim_ranked;

/* The order of a flow at its host: the classes of rankings/base.py. */
enum { ORDER_STEPS_OF_BYTES, ORDER_STEPS_OF_AGE, ORDER_OVERDUE };
typedef struct {
    uint32_t kind, steps, group; /* a number for the job's group; 0: none */
    uint32_t shares;             /* whether flows share the window of their stream */
    double highest, due_s, left_s, unit_s, head_start;
    const double *thresholds, *values;
} shim_order;

typedef struct shim_run shim_run;
typedef struct shim_host shim_host;

/* One flow, the same in every iteration. */
typedef struct shim_flow {
    shim_host *source, *destination;
    uint16_t job, flow;
    uint8_t data_headers[42], ack_headers[42]; /* Ethernet, IPv4 and UDP, without lengths and checksum */
    int64_t size_bytes, packet_bytes, retransmit_after_ns;
    int64_t window;        /* packets in flight, where it has a window of its own */
    int64_t stream_window; /* where it shares one with the flows of its job between its two hosts */
    int64_t initial;       /* packets in flight at first */
    int64_t every;         /* packets for one acknowledgement */
    uint32_t is_paced;
    uint64_t *tally; /* packets sent again, received twice, and reordered */
} shim_flow;

shim_run *shim_new(const network_in_c *network, const shim_constants *constants, uint64_t told_of_failure);
void shim_free(shim_run *run);
shim_host *shim_add_host(shim_run *run, void *nic);
/* Have a host rank the packets that it sends of a flow, by a `struct rank_rule` (ranks.h). Flows of one EchelonFlow
 * share a
   state. Return 0, or 1 if there is no memory. */
int shim_rank(shim_host *host, uint16_t job, uint16_t flow, uint32_t echelonflow, const void *rule);
/* Have all hosts mark what they send: acknowledgements with this code point. */
void shim_mark(shim_run *run, uint8_t acknowledgements);
/* Fall silent. */
void shim_close(shim_host *host);
/* Have a function take the frames that arrive at a host without a shim. */
void shim_pass_on(shim_host *host, int (*receive)(void *, int64_t, const uint8_t *, uint32_t), void *receiver);
/* Take a frame; return 0 if it has no shim and nothing else takes it, or is of a flow that is not expected. */
int shim_deliver(void *host, int64_t now_ns, const uint8_t *frame, uint32_t length);
/* Return the place of the most urgent. */
uint32_t shim_choose(void *host, int64_t now_ns, const shim_ranked *ranked, uint32_t count);
/* Expect a flow at its destination in an iteration, and tell `told` when all of it has arrived. `shares`: it shares the
   window of its stream. Return 0, or 1 if there is no memory. */
int shim_expect(shim_flow *flow, uint8_t epoch, uint64_t told, uint32_t is_ranked, uint32_t shares);
/* Send a flow from its source now, and tell `told`, if it is not 0, when all of it has been acknowledged. Hosts send by
   its order; NULL: packet by packet. Return 0, or 1 if there is no memory. */
int shim_send(shim_flow *flow, uint8_t epoch, uint64_t told, const shim_order *order);
/* Send a flow of this iteration at a rate from now on; a negative one is no limit. */
void shim_pace(const shim_flow *flow, uint8_t epoch, double rate_Bps);
/* Return the flow that got nowhere. */
const shim_flow *shim_failed(const shim_run *run);
