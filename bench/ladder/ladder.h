/* A fabric without one of its limits: whom ports serve, and what hosts and packets tell each other. */

/* Whom a port serves of the flows that are ranked relative to others:
   whom its queues say;
   the flow of the highest rank now;
   a flow of the highest level now, of these the one whose packet came first;
   the flow whose first packet had the highest rank when it came;
   whom its queues say, which flows get as from a Tofino (steps.c). */
enum { ORDER_QUEUES, ORDER_SERVED, ORDER_LEVELS, ORDER_ARRIVAL, ORDER_STEPS };
enum { LADDER_STEPS = 6 };

/* What differs from the fabric as it is; all 0: nothing does. */
typedef struct {
    uint32_t order;
    uint32_t free_acks;   /* acknowledgements arrive at once, and take no link's time */
    uint32_t true_stamps; /* packets leave their hosts with the true age and memory of their iteration */
    uint32_t ack_every;   /* packets to an acknowledgement at most; 0: as receivers choose */
    double steps[LADDER_STEPS]; /* of orders by levels, ascending: a flow is one lower for each that it is behind */
    /* Of ORDER_STEPS: */
    uint32_t top_is_kept; /* a register remembers the most urgent flow, and forgets it packet by packet */
    uint32_t moves_alone; /* a flow changes its queue only with a packet that is alone; else when none waits */
} ladder_rung;

/* A flow with a shim, in its newest iteration. Python writes what is true of it when the iteration starts. */
typedef struct {
    uint32_t key;            /* the numbers of its job and of itself in the shim */
    uint32_t is_ranked;      /* relative to others, by the rank of rankings/deadline.py: */
    uint32_t lowest, highest; /* the queues of the least and of the most urgent */
    uint32_t memory;         /* as stamps tell it */
    double due_s, memory_s, left_s, slope, head_start;
    int64_t reference_ns;    /* from which ages count; due_s counts from the start of the run */
    int64_t missing_bytes;   /* not yet at the destination */
    uint32_t has_begun, epoch;
    int64_t drains_from;     /* bytes left from which on its packets ask it to drain; 0: they do not */
    uint32_t unanswered;     /* packets that have arrived since the last that asked for an acknowledgement */
    uint64_t look;           /* the last look at a port in which its first packet was found */
    void *source;            /* its interface: a fabric_host */
} ladder_flow;

/* What left ports, in bytes of flows that are ranked relative to others. Beside the first, they left while a packet of
   a flow that was more urgent at that moment waited at the port: in a lower queue, in the same one, or in a higher one
   because a minimum share was due. */
typedef struct {
    uint64_t bytes, lower_bytes, same_bytes, share_bytes;
} ladder_counts;

/* What takes and chooses the frames of a host. */
typedef struct {
    int (*receive)(void *receiver, int64_t now_ns, const uint8_t *data, uint32_t length);
    uint32_t (*choose)(void *receiver, int64_t now_ns, const void *ranked, uint32_t count);
    void *receiver;
} ladder_host;

/* Begin a run, the only one of the process at this time. `started` and `finished` are called with the place of a flow
   when its first packet leaves the source in an iteration, and when all of it has arrived. Return 0, or 1 if there is
   no memory. */
int ladder_begin(const ladder_rung *rung, ladder_flow *flows, uint32_t count, void (*started)(uint32_t),
                 void (*finished)(uint32_t));
ladder_counts ladder_counted(void);
/* Return the present rank of a flow of which so many bytes are left from a packet on. */
double ladder_rank(const ladder_flow *flow, int64_t now_ns, int64_t left_bytes);
/* As fabric_send, and as functions of a host whose receiver is a ladder_host. */
void ladder_send(void *nic, const uint8_t *data, uint32_t length, uint64_t urgency);
int ladder_receive(void *host, int64_t now_ns, const uint8_t *data, uint32_t length);
uint32_t ladder_choose(void *host, int64_t now_ns, const void *ranked, uint32_t count);
