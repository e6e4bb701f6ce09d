/* What a program's compiled unit offers, and what it hands out. Fixed-width types are the only ones used.

   A switch is not for two threads at once: whoever calls ss_ingress, ss_egress or ss_drop holds ss_lock, for as many
   packets as it likes. ss_apply takes the lock by itself, and only while it copies prepared words. */

typedef struct ss_switch ss_switch;

/* A packet between ingress and egress. The program's own state and the packet's bytes lie behind it. */
typedef struct ss_packet {
    struct ss_packet *next;  /* the next of the same list */
    uint32_t port, queue, length_bytes;
    uint32_t copies;         /* unused by the program, as is holder: whoever holds the packet may write there */
    uint64_t holder[4];
    const uint8_t *data;     /* as it was received; NULL: the program is in Python and has kept it */
} ss_packet;

/* The outcome of egress. data is NULL if nothing leaves; otherwise it is valid until the next call of ss_egress. */
typedef struct ss_departure {
    int32_t port;
    uint32_t length;
    const uint8_t *data;
    ss_packet *requeue;      /* packets to be queued in turn */
} ss_departure;

/* The meter of a cell or entry: mode 0 does not meter, 1 is RFC 2698, 2 is RFC 2697 with peak as the excess bucket.
   Buckets are in units of 1e-9, least significant word first; met tells whether last_ns has been set. */
typedef struct ss_meter {
    uint64_t mode, committed_rate, committed_burst, peak_rate, peak_burst;
    uint64_t committed[2], peak[2];
    uint64_t met, last_ns;
} ss_meter;

/* The state that packets change in an entry. */
typedef struct ss_state {
    uint64_t packets, bytes, hit_ns;
    ss_meter meter;
} ss_state;

/* Return a new switch, NULL without memory for its arrays. */
ss_switch *ss_new(uint64_t drop_port, uint64_t hash_seed);
void ss_free(ss_switch *s);
void ss_lock(ss_switch *s);
void ss_unlock(ss_switch *s);

/* Return the packets for the traffic manager, in order; NULL if there is none, and the reason is counted. */
ss_packet *ss_ingress(ss_switch *s, uint32_t port, const uint8_t *data, uint32_t length, uint64_t now_ns);
/* Run egress for a packet, which ends its life; return the number of departures written to out. */
uint32_t ss_egress(ss_switch *s, ss_packet *packet, uint64_t enqueued_ns, uint64_t now_ns, uint32_t enq_qdepth,
                   uint32_t deq_qdepth, ss_departure *out, uint32_t room);
/* Give a packet back that will not reach egress. */
void ss_drop(ss_switch *s, ss_packet *packet);
/* Run a packet to its end as if no queue ever filled. What leaves is at *out as (port, length, bytes) each, with
   numbers of four bytes; return the length of it all. */
uint64_t ss_process(ss_switch *s, uint32_t port, const uint8_t *data, uint32_t length, uint64_t now_ns,
                    const uint8_t **out);

/* Set memory aside for the next commands, of so many words; return 0 if there is none, or the switch may not have it. */
uint32_t ss_reserve(ss_switch *s, uint64_t words);
/* Apply prepared commands, all of them before or after any packet; return 0, or the place of a malformed one. */
uint64_t ss_apply(ss_switch *s, const uint64_t *words, uint64_t count);
/* Return the memory of a part of the switch, NULL if there is none; parts are named in engine.py. */
void *ss_part(ss_switch *s, uint32_t part, uint64_t number, uint64_t index);
/* Move up to room words of digests and messages to out; return how many. */
uint64_t ss_events(ss_switch *s, uint64_t *out, uint64_t room);
