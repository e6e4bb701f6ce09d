/* The types that C's headers would declare, and libc's functions that need no type of theirs. */
#ifndef TYPES_H
#define TYPES_H

typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef int int32_t;
typedef unsigned long long uint64_t;
typedef long long int64_t;
typedef __SIZE_TYPE__ size_type;

void *calloc(size_type count, size_type size);
void free(void *memory);
void *memcpy(void *to, const void *from, size_type bytes);
void *memmove(void *to, const void *from, size_type bytes);
void *memset(void *to, int byte, size_type bytes);

#define NULL ((void *)0)

#endif
