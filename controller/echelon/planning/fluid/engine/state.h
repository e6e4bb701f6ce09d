/* What the fluid engine is given, and its state.
 *
 * Times are seconds since the beginning of the run, rates are bytes per second.
 */

typedef unsigned long size_type;
void *malloc(size_type size);
void *calloc(size_type count, size_type size);
void *realloc(void *old, size_type size);
void free(void *old);

#define QUEUES 8
#define NEVER 1e300
#define TOLERANCE 1e-9 /* the relative error of a rate, as in sharing.py */
#define ACKNOWLEDGED 3e-4 /* the part of a link that acknowledgements may differ by, as in sharing.py */
#define SAME_OFFER 1e-13 /* offers so close, as a part of them, differ by rounding only */
#define MOST_HOPS 64 /* in the order of offers, the hops of a path */
#define MOST_VISITS 10000 /* after so many in one event, offers may differ by TOLERANCE */
#define SAME_TIME 1e-12 /* events so close, as a part of the time, happen at once */
#define GRAIN_BYTES (1.0 / (1 << 20))
#define GRAINS 1e9 /* ranks closer than 1 / GRAINS count as equal */
#define MOST_STALLED 1000

enum { FIXED, THRESHOLDS, RELATIVE, ATTAINED, WINDOW };
enum { DONE, PAUSED, RUNNING, NO_RATES, NO_VALIDITY, NO_MEMORY };
enum { FLOW_ENDS, WINDOW_OPENS, RATES_END, UNIT_ENDS, JOB_STARTS, BACKGROUND_STARTS };

/* -- what the caller gives, and keeps for the life of the run ------------------------------------------------------ */

typedef struct {
    int links, jobs, groups, hosts, delays, background;
    const double *capacity;
    const int *node, *reverse;    /* by link: the node that it leaves; the link of the opposite direction, or -1 */
    const int *first_step;        /* by job, and the number of steps at the end; steps are in topological order */
    const double *start_s;        /* by job */
    const double *compute_scale, *size_scale; /* by job: what its durations and sizes are multiplied by */
    const int *in_turn;           /* by job */
    const int *is_flow;           /* by step; so are the next six */
    const double *amount;         /* seconds of a compute unit, bytes of a flow */
    const int *count;             /* the number of equal flows for which a flow stands; all are as large */
    const int *host;              /* the host that computes or sends */
    const int *place;             /* its place in the order in which the job lists its steps */
    const int *missing;           /* the number of steps that it waits for */
    const int *first_follower;    /* and the number of all followers at the end */
    const int *followers;         /* the steps that wait for it */
    const int *delayed_job, *delayed_host, *delayed_iteration;
    const double *delay_s;
    const double *background_start_s, *background_bytes, *background_most;
    int iterations;               /* -1: until the time is up */
    int load_stays;               /* whether jobs that are ahead go on */
    double packet_bytes, acknowledging;
    int keeps_spans;
} Given;

typedef struct {
    int kind;
    int lowest, highest;          /* FIXED: the queue is `lowest`; WINDOW: outside and inside */
    int group;                    /* the owner of its state: an EchelonFlow's reference, or a group of bytes */
    int first, count;             /* thresholds or steps in `numbers` */
    int first_order;              /* ATTAINED: its queues in `orders` */
    double offset_s, due_s, slope, left_s, head_start, alone_s, grain_s; /* THRESHOLDS and RELATIVE */
    double period_s, begin_s, end_s;                                     /* WINDOW */
} Ranking;

typedef struct {
    int rankings, paths, numbers_count, orders_count;
    const Ranking *ranking;
    const double *numbers;
    const int *orders;
    const int *ranking_of, *path_of;     /* by step, and then by background flow */
    const int *first_link, *path_links;  /* by path, and the number of links at the end; the links of all paths */
    const int *window_initial;           /* by path: packets in flight at first */
    const int *window_single, *window_shared; /* by path: of a flow, and of a stream of flows */
    const double *passing_s, *passing_s_per_byte; /* by path: how long the last packet is on its way, without its bytes,
                                                     and for each of them */
    const int *stream_of;                /* by step, and then by background flow: its stream, or -1 */
    int streams;
    const int *has_queues;               /* by link; the next four have QUEUES of each link */
    const int *level, *weight;
    const double *most, *least;          /* the maximum and minimum share of a queue, as parts of the link */
} Planned;

/* -- state ----------------------------------------------------------------------------------------------------------
 * */

typedef struct PlanCopy PlanCopy;
struct PlanCopy {
    Planned of;
    PlanCopy *before;
};

typedef struct Flow Flow;
typedef struct Nearby Nearby;

typedef struct { /* an offer, and in the order of equal ones: the oldest flow that has it, and by which hop */
    double size, rounded;
    long first;
} Quote;

typedef struct {
    int port;
    int at;    /* the place of the flow in the port's list */
    int queue;
    const Quote *offer; /* what the queue offers, where changes spread */
} Hop;

typedef struct { /* a flow at a port, as changes spread */
    const Quote *elsewhere;  /* the least offer that it has from other ports */
    double units;            /* its windows */
    long first;              /* what this port's offer to it alone would have */
    int queue;
} Visitor;

struct Flow {
    Hop *hop;
    int hops, hops_room, window, level, is_altered, is_opening;
    int tightest;                         /* as changes spread: by which hop it has the least offer, or -1 */
    int count;                            /* the equal flows for which it stands; sizes and rates are those of each */
    double able;                          /* as changes spread: the most that it could have */
    Quote offer;                          /* its rate for each packet of window */
    Quote alone;                          /* the offer that it could take at most */
    double planned, loaded; /* the rate that it is to have; the rate by which it counts in the loads of ports */
    double size, left, start_s, since_s, rate, fastest, most; /* `most`: the constant rate of its sender, or -1 */
    long sequence, version, seen;         /* versions go on when the object is used again: old events are outdated */
    int job, step, iteration, background; /* `background`: its number, or -1 */
    const Ranking *ranking;
    const PlanCopy *plan;
    double due_s, arranged_s;
    int initial, full, stream, gone, is_new, present_at, held_up;
    double passing_s;                     /* from when its last byte has been sent until it arrives */
    double opens_at;                      /* the sent bytes from which on its window is larger, or NEVER */
    Nearby *nearby;
    Flow *next;
};

typedef struct {
    int group;
    double bytes;
} Counting; /* ranks that end when a group has sent so many more bytes */

typedef struct {
    /* As changes spread. What is asked of many ports stands together first, for the sake of caches. */
    double due;                        /* what is the first to be looked at again, as `Due` says, or NEVER */
    double capacity, taken;            /* `taken`: what acknowledgements are reckoned to take */
    double demand;                     /* the rate of all flows if each were as fast as it is able to */
    int is_full, is_divided, narrow;   /* whether it holds flows up, in several queues of a level */
    int holding, queues;               /* the queues that hold flows up, as bits, and those in which flows are */
    int limited;
    double held_until;                 /* where the last of those that hold flows up stands, as `Due` says, or -1 */
    int queue[QUEUES];
    int level[QUEUES], weight[QUEUES];
    int has_queues;
    int number, queue_number[QUEUES];  /* scratch: their numbers while rates are shared, or -1 */
    double most[QUEUES], least[QUEUES];
    double rate[QUEUES], last[QUEUES]; /* the rates of its queues, and the offers at which their last flows are served */
    Quote offer[QUEUES];               /* what its queues offer */
    Visitor *visitor;                  /* by flow */
    Flow **flow;
    int flows, flows_room, visitors_room;
    double load;                       /* the rate of flows with windows */
    double fastest, until_s;
    double rated_until_s;              /* until when levels that depend on rates hold in any case */
    int is_settled;                    /* whether they are what they would be if rates counted */
    int reverse, node;
    int outdated, rated;
    long seen;
    Counting *counting;
    int countings, countings_room;
} Port;

struct Nearby { /* a neighbourhood: flows whose rates were set together */
    Flow **flow;
    Port **port;
    int flows, flows_room, ports, ports_room, ended, expired, differs;
    double until_s;
    long version;
    Nearby *next;
};

typedef struct {
    double time_s;
    long order, version;
    int what, number, step;
    Flow *flow;
    Nearby *nearby;
} Event;

typedef struct { /* what switches keep for an EchelonFlow's reference, a group of bytes, or a job's periods */
    int reference_iteration;
    double reference_start_s, reference_offset_s;
    int iteration, active, active_room, nodes, nodes_room, begun;
    Flow **flow;
    int *node;
    double *finished_bytes; /* by node */
    double begun_s;
    long ranked_at;
    const Ranking *ranked_as;
    int queue;
    double until_bytes;
} Group;

typedef struct {
    int iteration, finished, unfinished, remembered, has_late, is_running;
    double delay_s, late_s;             /* memory */
    int *waiting, waiting_count, waiting_room; /* flows that wait for their turn, in order */
    double *ends;                       /* start and finish by iteration; -1: not yet */
    int ends_room;
    double *spans;                      /* start and finish by iteration and step; -1: not yet */
    int spans_room;
} Job;

typedef struct {
    unsigned long long size, first; /* in the order of offers: how large it is, and to which flow it is made first */
    int queue, version;             /* by whom (-1: the flow's own rate) */
} Offer;

typedef struct { /* a port to be looked at again, by the order in which rates depend on each other */
    double order;
    Port *port;
} Due;

typedef struct { /* a flow's rank now, and its growth per second */
    double value, growth;
    Flow *flow;
} Standing;

typedef struct Engine {
    Given g;
    PlanCopy *plan;
    Port *port;
    Job *job;
    int *missing;
    char *busy, *delayed;     /* by job and host */
    Group *group;
    double now_s, latest_s;
    Event *event;
    int events, events_room, tidy_at;
    long announced, started, searches, calls, allocations, work;
    Flow **present, **touched, **empty, *spare_flow;
    int present_count, present_room, touched_count, touched_room, empty_count, empty_room;
    Nearby *expired, **last_expired, *spare_nearby, **begun;
    int begun_count, begun_room;
    int changed, moved, stalled, failed;
    Flow **head;              /* scratch: the flow of each stream that sends */
    int heads_room;
    int differs;              /* whether what rates depend on has changed since they were set */
    double *background_spans;
    long counter; int spreads, visits;              /* whether changes spread (spreading.c), rather than each neighbourhood is shared anew */
    Due *due;
    int dues, dues_room;
    Flow **altered;
    int altered_count, altered_room;
    int *waiting, waiting_room;
    Flow **found, **flows_due;
    int found_count, found_room, flows_due_count, flows_due_room;
    Port **found_port;
    int found_ports, found_ports_room;
    int *others, others_count, others_room;
    int *ready, ready_count, ready_room;
    Standing *standing;       /* scratch, as are the next: the ranks at a port, and who sends in a neighbourhood */
    int standings_room;
    Flow **sending;
    int sending_count, sending_room;
    char *scratch;
    size_type scratch_size, scratch_used;
    Offer *offer;
    int offers, offers_room;
    int is_offer_taken;       /* whether the first is none any more, and makes place for the next */
} Engine;

static void *grown(Engine *e, void *old, int *room, int count, size_type size) {
    if (count < *room) return old;
    int more = *room ? 2 * *room : 16;
    while (more <= count) more *= 2;
    void *fresh = realloc(old, size * (size_type)more);
    if (!fresh) {
        e->failed = NO_MEMORY;
        return old;
    }
    *room = more;
    return fresh;
}

/* Make room for one more item behind `count`. */
#define ROOM(list, count, room) (list) = grown(e, (list), &(room), (count), sizeof *(list))

static double least_of(double a, double b) { return b < a ? b : a; }
static double most_of(double a, double b) { return b > a ? b : a; }
