/* UDP sockets and the real time as a network for shim.c: what PacedSockets and RealTimeLoop are in sockets.py. */

typedef struct datagrams datagrams;

/* Something that was told, and when. */
typedef struct {
    uint64_t number;
    int64_t time_ns;
} datagrams_news;

/* A host whose sockets are these: one for everything that arrives, and a timer that is ready when a call is due.
   It sends no more than rate_bps of frames. NULL: there is no memory. */
datagrams *datagrams_new(int32_t incoming_fd, int32_t timer_fd, int64_t rate_bps, uint16_t port);
void datagrams_free(datagrams *d);
/* Send from this socket what leaves from a port. Return 0, or 1 if there is no memory. */
int datagrams_open(datagrams *d, uint16_t source_port, int32_t fd);
/* Give frames that arrive to a receiver; where it returns 0, datagrams_work returns. */
void datagrams_receive_with(
    datagrams *d, int (*receive)(void *, int64_t, const uint8_t *, uint32_t), void *receiver);

/* A network for shim.c. */
int64_t *datagrams_now(datagrams *d);
void datagrams_call(void *d, int64_t time_ns, void (*function)(void *, uint64_t), void *what, uint64_t value);
void datagrams_tell(void *d, uint64_t number);
void datagrams_send(void *d, const uint8_t *frame, uint32_t length, uint64_t urgency);
uint32_t datagrams_waits(const void *d, uint64_t urgency);

/* Look at the clock: before anything else is called that reads the time. */
void datagrams_look(datagrams *d);
/* Do what is due, and take what has arrived. */
enum { WORK_DONE, WORK_UNEXPECTED, WORK_FAILED };
uint32_t datagrams_work(datagrams *d);
/* The frame that was not expected, and its length. */
const uint8_t *datagrams_unexpected(const datagrams *d, uint32_t *length);
/* Give the frame that was not expected to the receiver once more; it is forgotten if it is still not expected. */
void datagrams_again(datagrams *d);
/* Set the timer; after anything that may have called datagrams_call. */
void datagrams_arm(datagrams *d);
/* Return what was told, so many; it is forgotten then. */
uint32_t datagrams_told(datagrams *d, const datagrams_news **news);
/* Return the number of the error that ended it, 0 for none. */
int datagrams_error(const datagrams *d);
