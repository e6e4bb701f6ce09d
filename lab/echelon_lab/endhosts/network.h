/* A network in C: its clock, and what sends. */
typedef struct {
    void *clock;
    const int64_t *now_ns;
    void (*call)(void *clock, int64_t time_ns, void (*function)(void *, uint64_t), void *what, uint64_t value);
    void (*tell)(void *clock, uint64_t value);
    void (*send)(void *nic, const uint8_t *data, uint32_t length, uint64_t urgency);
    uint32_t (*waits)(const void *nic, uint64_t urgency);
} network_in_c;
