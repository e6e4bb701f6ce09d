/* A switch between real interfaces, and the threads that move its packets. */

enum { PORTS = 512, BATCH_PACKETS = 2048, BATCH_BYTES = 1 << 20, GROUPS = 64 };
enum {
    DROP_INGRESS, DROP_NO_PORT, DROP_NO_QUEUE, DROP_QUEUE_FULL, DROP_EGRESS, DROP_PORT_DOWN, DROP_NO_PEER, DROP_REFUSED,
    DROPS
};
enum { OBSTACLE_NONE, OBSTACLE_FULL, OBSTACLE_DOWN, OBSTACLE_REFUSED, OBSTACLE_NO_PEER };

/* The functions of a program's unit, and its switch. */
typedef struct {
    ss_switch *state;
    ss_packet *(*ingress)(ss_switch *, uint32_t, const uint8_t *, uint32_t, uint64_t);
    uint32_t (*egress)(ss_switch *, ss_packet *, uint64_t, uint64_t, uint32_t, uint32_t, ss_departure *, uint32_t);
    void (*drop)(ss_switch *, ss_packet *);
    void (*lock)(ss_switch *);
    void (*unlock)(ss_switch *);
    const uint64_t *events; /* how much there is for ss_events; NULL: never anything */
    uint64_t waiting;       /* packets of it in queues */
} core_program;

/* Packets to send, one behind the other. */
typedef struct {
    uint32_t first, count, bytes; /* those before first are sent */
    uint32_t start[BATCH_PACKETS], length[BATCH_PACKETS];
    uint8_t data[BATCH_BYTES];
} core_batch;

/* One port: its queues, and what is to be sent. */
typedef struct core_outlet {
    tm_port *queues;
    core_batch *filling, *sending; /* sending is that of the thread which flushes */
    struct core_outlet *next_touched, *next_flushed;
    int32_t port;
    uint32_t is_interface, up, blocked, serving, touched;
    int64_t due_ns, served_ns; /* due_ns is -1 if nothing happens by itself */
    uint64_t packets_in, bytes_in, packets_out, bytes_out, dropped;
    /* Its interface, if it has one. */
    int32_t fd; /* -1: closed */
    uint32_t group, is_flushed, taken, obstacle; /* taken and obstacle are how flushing ended */
    void *messages; /* the arguments of sendmmsg, of which only the pieces change */
    uint8_t *ring;
    uint32_t slot_bytes, slots, next;
    int64_t retry_ns;
    uint64_t lost;
} core_outlet;

typedef struct {
    core_outlet *outlet[PORTS];
    core_outlet nowhere;
    core_program *program, *held; /* held is the one whose lock is held */
    uint32_t queues, outlets;
    uint32_t number[PORTS]; /* the numbers of the ports, in the order in which they were added */
    uint64_t replicated, dropped[DROPS];
} core;

typedef struct wires wires;

/* The switch without its clock and its interfaces. Whoever calls these holds the lock of the wires. */
core *core_of(wires *w);
void core_receive(core *c, uint32_t port, const uint8_t *data, uint32_t length, int64_t now_ns);
int64_t core_serve_due(core *c, int64_t now_ns);
void core_refused(core *c, core_outlet *outlet, uint32_t obstacle, int64_t now_ns);
void core_unblock(core *c, core_outlet *outlet, int64_t now_ns);
void core_set_up(core *c, core_outlet *outlet, uint32_t up, int64_t now_ns);
void core_plan(core *c, core_outlet *outlet, int64_t now_ns);
void core_sent(core_outlet *outlet, core_batch *batch, uint32_t packets);
void core_let_go(core *c);

/* queues is the number of those that a program may use; epoch_ns the time of CLOCK_MONOTONIC at which the clock begins;
   wake_fds an eventfd for each group; news_fd one that is written to when somebody should look at ports and at packets
   for controllers. */
wires *wires_new(
    uint32_t queues, uint32_t groups, int64_t epoch_ns, tm_port *nowhere, const int32_t *wake_fds, int32_t news_fd);
void wires_free(wires *w);
void wires_lock(wires *w);
void wires_unlock(wires *w);
/* Return NULL if there is no memory. A port without an interface is the controllers'. */
core_outlet *wires_add(wires *w, uint32_t port, tm_port *queues, uint32_t group, uint32_t is_interface);
void wires_open(wires *w, core_outlet *outlet, int32_t fd, uint8_t *ring, uint32_t slot_bytes, uint32_t slots);
void wires_close(wires *w, core_outlet *outlet);
void wires_wake(wires *w);
/* Return whether an interface has failed since the last call. */
uint32_t wires_trouble(wires *w);
/* A thread calls enter before it takes the lock, and leave after it has given it back, if they are not NULL. */
void wires_run_program(wires *w, core_program *program, void (*enter)(void), void (*leave)(void));
/* Serve the interfaces of a group until wires_stop; return 0, or the number of the error that ended it. */
int wires_run(wires *w, uint32_t group);
void wires_stop(wires *w);
void wires_inject(wires *w, uint32_t port, const uint8_t *data, uint32_t length);
/* Return the packets that wait for controllers, which stay until the next call; NULL: none do. */
core_batch *wires_take(wires *w, core_outlet *outlet);
