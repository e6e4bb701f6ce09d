/* UDP sockets and the real time as a network for shim.c: what PacedSockets and RealTimeLoop are in sockets.py. */

typedef struct datagrams datagrams;

/* Something that was told, and when. */
typedef struct {
    uint64_t number;
    int64_t time_ns;
} datagrams_news;

/* What poll(2) takes. */
typedef struct {
    int32_t fd;
    int16_t events, occurred;
} datagrams_request;

/* A host that gets everything from this socket, and sends to a port, no more than rate_bps of frames. NULL: there is no
   memory. */
datagrams *datagrams_new(int32_t incoming_fd, int64_t rate_bps, uint16_t port);
void datagrams_free(datagrams *d);
/* Send from this socket what leaves from a port. */
void datagrams_open(datagrams *d, uint16_t source_port, int32_t fd);
/* Give frames that arrive to a receiver; where it returns 0, datagrams_wait returns. */
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
/* Send and receive until something was told or was not expected, until a time, or until others of the requests are
   ready; the first request is free for the host's own. */
enum { WAIT_DONE, WAIT_UNEXPECTED, WAIT_FAILED };
uint32_t datagrams_wait(datagrams *d, int64_t until_ns, datagrams_request *requests, uint32_t count);
/* The frame that was not expected, and its length. */
const uint8_t *datagrams_unexpected(const datagrams *d, uint32_t *length);
/* Give the frame that was not expected to the receiver once more; it is forgotten if it is still not expected. */
void datagrams_again(datagrams *d);
/* Return what was told, so many; it is forgotten then. */
uint32_t datagrams_told(datagrams *d, const datagrams_news **news);
/* Return the number of the error that ended it, 0 for none. */
int datagrams_error(const datagrams *d);
