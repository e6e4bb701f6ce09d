/* Switches and hosts joined by links, in virtual time. */

enum { FABRIC_PORTS = 512, FABRIC_DEPARTURES = 64 };
/* Why fabric_run returns: nothing is left to do, it has done as much as it was to, a call of Python's is due, a frame
   has arrived at a host, a host has to choose a queue, something was told, a program has failed, memory is short. */
enum { RUN_DONE, RUN_STOPPED, RUN_CALL, RUN_RECEIVED, RUN_CHOOSE, RUN_TOLD, RUN_FAILED, RUN_NO_MEMORY };
enum { DROP_INGRESS, DROP_NO_LINK, DROP_NO_QUEUE, DROP_QUEUE_FULL, DROP_EGRESS, DROPS };

typedef struct fabric fabric;

/* The functions of a program's unit, and its switch. */
typedef struct {
    ss_switch *state;
    ss_packet *(*ingress)(ss_switch *, uint32_t, const uint8_t *, uint32_t, uint64_t);
    uint32_t (*egress)(ss_switch *, ss_packet *, uint64_t, uint64_t, uint32_t, uint32_t, ss_departure *, uint32_t);
    void (*drop)(ss_switch *, ss_packet *);
    const uint64_t *events; /* the words of digests and messages that wait; NULL: there never are any */
    void (*report)(uint64_t); /* passes them on */
    uint64_t number;          /* what report is given */
    uint64_t waiting;         /* packets of it in queues */
} fabric_program;

/* A packet on its way. Its bytes lie behind it. */
typedef struct fabric_frame {
    struct fabric_frame *next;
    uint32_t length, room;
} fabric_frame;

typedef struct {
    fabric_frame *first, *last;
} fabric_queue;

typedef struct fabric_wire {
    tm_pacer line;
    int64_t delay_ns;
    struct fabric_host *to_host; /* one of the two is NULL */
    struct fabric_switch *to_switch;
    uint32_t to_port;
    uint64_t sent_packets, sent_bytes, delivered_packets;
} fabric_wire;

typedef struct {
    uint64_t urgency;
    fabric_queue packets;
} fabric_ranked;

typedef struct fabric_host {
    fabric *of;
    struct fabric_host *next; /* of all */
    fabric_wire *wire;
    fabric_queue unranked;
    fabric_ranked *ranked; /* the queues with packets, in the order in which they got the first one */
    uint32_t number, ranked_count, ranked_room, is_rankeds_turn, awake;
    int64_t backlog_bytes;
    uint64_t packets_sent, packets_received, packets_dropped;
    /* What takes frames that arrive; it returns whether it has. NULL: Python gets them. */
    int (*receive)(void *receiver, int64_t now_ns, const uint8_t *data, uint32_t length);
    void *receiver;
    /* What returns the place of the most urgent queue, the first of several. NULL: Python chooses. */
    uint32_t (*choose)(void *receiver, int64_t now_ns, const fabric_ranked *ranked, uint32_t count);
} fabric_host;

typedef struct fabric_outlet {
    struct fabric_switch *of;
    struct fabric_outlet *next; /* of all */
    tm_port *queues;
    fabric_wire *wire;
    int64_t *wakes_ns;
    uint32_t port, wakes, wakes_room, is_listed;
} fabric_outlet;

typedef struct fabric_switch {
    fabric *of;
    fabric_program *program;
    fabric_outlet *outlet[FABRIC_PORTS];
    uint64_t unlinked, packets_in, packets_out, replicated, dropped[DROPS];
} fabric_switch;

/* What a run has come to. */
typedef struct {
    int64_t now_ns;
    uint64_t ran, pending;
    uint32_t stopped, failed;
    uint64_t value; /* of a call, or of what was told */
    uint32_t is_told;
    fabric_host *host; /* where a frame has arrived, or that has to choose */
    const uint8_t *data;
    uint32_t length;
} fabric_state;

fabric *fabric_new(int64_t now_ns);
void fabric_free(fabric *f);
fabric_state *fabric_state_of(fabric *f);
/* The functions that add return NULL if there is no memory. */
fabric_host *fabric_add_host(fabric *f, uint32_t number);
fabric_switch *fabric_add_switch(fabric *f);
fabric_wire *fabric_add_wire(fabric *f, int64_t rate_bps, int64_t delay_ns);
fabric_outlet *fabric_attach(fabric_switch *s, uint32_t port, tm_port *queues, fabric_wire *wire);
/* Run events up to until_ns, at most so many, until there is something for the caller to do. */
uint32_t fabric_run(fabric *f, int64_t until_ns, uint64_t most);
/* Return with RUN_CALL and this value at time_ns. */
void fabric_at(fabric *f, int64_t time_ns, uint64_t value);
/* Call a function at time_ns. */
void fabric_call(fabric *f, int64_t time_ns, void (*function)(void *, uint64_t), void *what, uint64_t value);
/* Return with RUN_TOLD and this value after the present event, which may tell one thing. */
void fabric_tell(fabric *f, uint64_t value);
/* An urgency of 0 is none. */
void fabric_send(fabric_host *h, const uint8_t *data, uint32_t length, uint64_t urgency);
/* Return whether packets of an urgency wait. */
uint32_t fabric_waits(const fabric_host *h, uint64_t urgency);
/* Send the next packet of the queue that was chosen. */
void fabric_chosen(fabric_host *h, uint32_t place);
void fabric_receive(fabric_switch *s, uint32_t port, const uint8_t *data, uint32_t length);
void fabric_wake(fabric_outlet *o);
