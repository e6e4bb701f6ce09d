/* The two ends of TCP connections, at all hosts of a run: frames.py, newreno.py, sender.py and stack.py, packet for
   packet. */

/* The settings of both ends. */
typedef struct {
    int64_t mss_bytes, min_rto_ns, receive_window_bytes, delayed_ack_ns;
    uint32_t window_scale, ecn;
    uint32_t is_mltcp; /* with the numbers of Aggressiveness */
    int64_t iteration_bytes;
    double slope, intercept;
} tcp_settings;

enum { TALLY_RETRANSMITTED, TALLY_DUPLICATE, TALLY_REORDERED, TALLY_TIMEOUTS, TALLY_UNDONE, TALLIES };

/* What is told of a connection: it has received what was awaited, or has ended. */
typedef struct {
    uint64_t connection;
    int64_t received_bytes;
    uint32_t has_ended, is_lost;
} tcp_notice;

typedef struct tcp_run tcp_run;
typedef struct tcp_host tcp_host;

/* `told` is told for every notice. */
tcp_run *tcp_new(const network_in_c *network, uint64_t told);
void tcp_free(tcp_run *run);
tcp_host *tcp_add_host(tcp_run *run, void *nic, const uint8_t *mac, const uint8_t *ipv4);
/* Let all hosts fall silent. */
void tcp_silence(tcp_run *run);
/* Take a frame; return 0 if it is for no connection here. */
int tcp_deliver(void *host, int64_t now_ns, const uint8_t *frame, uint32_t length);
/* Return the newest notice. It holds until virtual time goes on. */
const tcp_notice *tcp_told(const tcp_run *run);
/* Return whether a receiver takes what comes from these addresses and ports. */
int tcp_is_taken(const tcp_host *source, const tcp_host *destination, uint16_t from, uint16_t to);
/* Return the number of a new connection between ports of two hosts; 0: there is no memory. The settings and the
   tally, of TALLIES counters, must outlive it. */
uint64_t tcp_connect(
    tcp_host *source, tcp_host *destination, uint16_t from, uint16_t to, const tcp_settings *settings, uint64_t *tally);
/* These do nothing for a connection that has ended. */
/* Begin with a handshake, or as if there had been one. */
void tcp_open(tcp_run *run, uint64_t connection);
void tcp_establish(tcp_run *run, uint64_t connection);
/* Write more bytes, and then none, if it closes. */
void tcp_write(tcp_run *run, uint64_t connection, int64_t length_bytes, uint32_t closes);
/* Tell when so many bytes have been received. */
void tcp_await(tcp_run *run, uint64_t connection, int64_t received_bytes);
int64_t tcp_received(const tcp_run *run, uint64_t connection);
