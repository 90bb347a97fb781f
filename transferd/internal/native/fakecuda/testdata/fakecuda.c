// A libcuda for tests: device memory is shared files, and every argument and
// lifetime that the real driver only punishes by undefined behaviour is checked.
// Copies on a stream happen when the stream is synchronized, not before, so that
// a missing synchronization reads what was there earlier. What is wrong is written
// to the log as a line that begins with "violation".
//
// Allocations and logs lie in the folder of the library itself.
//
// FAKE_CUDA_BREAK  synchronizations fail from the n-th on; its copies land FAKE_CUDA_LATE
//                  milliseconds later unless the context is reset before
// FAKE_CUDA_STUCK  a context cannot be reset
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef int CUresult;
typedef uint64_t CUdeviceptr;
typedef struct { char reserved[64]; } CUipcMemHandle;

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, LAUNCH_FAILED = 719 };
enum { DEVICES = 2, SLOTS = 256, QUEUE = 4096 };

struct memory { int live, imported, device; CUdeviceptr at; size_t bytes; char *host; char path[300]; };
struct copy { int to_device; CUdeviceptr dev; char *host; size_t n; };
struct stream { int live, device, queued, epoch; struct copy queue[QUEUE]; };
struct pinned { int live; char *at; size_t bytes; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int initialized, syncs, next_id = 1;
static int retained[DEVICES], epoch[DEVICES], lost[DEVICES];
static struct memory memories[SLOTS];
static struct stream streams[SLOTS];
static struct pinned pins[SLOTS];
static __thread int current = -1;

static const char *dir(void) {
	static char of[300];
	Dl_info info;
	if (!of[0] && dladdr((void *)dir, &info)) {
		snprintf(of, sizeof of, "%s", info.dli_fname);
		*strrchr(of, '/') = 0;
	}
	return of;
}

static void say(const char *format, ...) {
	char line[600], path[300];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line, sizeof line - 1, format, args);
	va_end(args);
	line[n++] = '\n';
	snprintf(path, sizeof path, "%s/log.%d", dir(), getpid());
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd >= 0) { if (write(fd, line, n) != n) abort(); close(fd); }
}

#define ENTER(name) const char *who = name; pthread_mutex_lock(&lock); if (!initialized) { say("violation: %s before cuInit", who); pthread_mutex_unlock(&lock); return NOT_INITIALIZED; }
#define LEAVE(code) do { int result = (code); pthread_mutex_unlock(&lock); return result; } while (0)
#define NEEDS_CONTEXT() do { if (current < 0) { say("violation: %s without a context", who); LEAVE(INVALID_CONTEXT); } \
	if (retained[current] <= 0) { say("violation: %s in a context that was released", who); LEAVE(INVALID_CONTEXT); } if (lost[current]) LEAVE(LAUNCH_FAILED); } while (0)

CUresult cuInit(unsigned flags) {
	if (flags != 0) { say("violation: cuInit with flags %u", flags); return INVALID_VALUE; }
	initialized = 1;
	return OK;
}

CUresult cuDriverGetVersion(int *v) { *v = 12080; return OK; }
CUresult cuDeviceGetCount(int *n) { ENTER("cuDeviceGetCount"); *n = DEVICES; LEAVE(OK); }
CUresult cuDeviceGet(int *d, int ordinal) {
	ENTER("cuDeviceGet");
	if (ordinal < 0 || ordinal >= DEVICES) LEAVE(INVALID_DEVICE);
	*d = ordinal;
	LEAVE(OK);
}
CUresult cuDeviceGetUuid_v2(char uuid[16], int d) {
	ENTER("cuDeviceGetUuid");
	if (d < 0 || d >= DEVICES) { say("violation: uuid of device %d", d); LEAVE(INVALID_DEVICE); }
	memset(uuid, 0xA0 + d, 16);
	LEAVE(OK);
}

// A context is 1 + its device's number.
CUresult cuDevicePrimaryCtxRetain(uint64_t *ctx, int d) {
	ENTER("cuDevicePrimaryCtxRetain");
	if (d < 0 || d >= DEVICES) LEAVE(INVALID_DEVICE);
	retained[d]++;
	say("retain %d", d);
	*ctx = 1 + d;
	LEAVE(OK);
}
CUresult cuDevicePrimaryCtxRelease_v2(int d) {
	ENTER("cuDevicePrimaryCtxRelease");
	if (d < 0 || d >= DEVICES || retained[d] <= 0) { say("violation: release of a context that is not held"); LEAVE(INVALID_CONTEXT); }
	retained[d]--;
	say("release %d", d);
	LEAVE(OK);
}
CUresult cuDevicePrimaryCtxReset_v2(int d) {
	ENTER("cuDevicePrimaryCtxReset");
	if (getenv("FAKE_CUDA_STUCK")) LEAVE(LAUNCH_FAILED);
	epoch[d]++; // what is queued never lands; every handle of the context is dead
	lost[d] = 1;
	for (int i = 0; i < SLOTS; i++) {
		if (streams[i].device == d) streams[i].live = 0;
		if (memories[i].device == d && memories[i].imported && memories[i].live) { memories[i].live = 0; say("ipc_close %s", memories[i].path); }
	}
	say("reset %d", d);
	LEAVE(OK);
}
CUresult cuCtxSetCurrent(uint64_t ctx) {
	ENTER("cuCtxSetCurrent");
	if (ctx > DEVICES) { say("violation: context %lu", (unsigned long)ctx); LEAVE(INVALID_CONTEXT); }
	current = (int)ctx - 1;
	LEAVE(OK);
}

static struct memory *slot(void) {
	for (int i = 0; i < SLOTS; i++)
		if (memories[i].bytes == 0) return &memories[i]; // never used twice: a dead one is recognized
	return NULL;
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) {
	ENTER("cuMemAlloc");
	NEEDS_CONTEXT();
	struct memory *m = slot();
	if (bytes == 0 || !m) LEAVE(INVALID_VALUE);
	snprintf(m->path, sizeof m->path, "%s/device.%d.%d", dir(), getpid(), next_id);
	int fd = open(m->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, bytes) != 0) { if (fd >= 0) close(fd); LEAVE(OUT_OF_MEMORY); }
	m->host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (m->host == MAP_FAILED) LEAVE(OUT_OF_MEMORY);
	m->live = 1, m->device = current, m->bytes = bytes;
	m->at = 0xD00000000000ull + ((uint64_t)getpid() % 512 << 36) + ((uint64_t)next_id++ << 28); // of no use as an address here
	say("alloc %s", m->path);
	*out = m->at;
	LEAVE(OK);
}
CUresult cuMemFree_v2(CUdeviceptr at) {
	ENTER("cuMemFree");
	NEEDS_CONTEXT();
	for (int i = 0; i < SLOTS; i++) {
		struct memory *m = &memories[i];
		if (m->bytes == 0 || m->at != at || m->imported) continue;
		if (!m->live) { say("violation: cuMemFree twice"); LEAVE(INVALID_VALUE); }
		m->live = 0;
		memset(m->host, 0xDD, m->bytes);
		unlink(m->path);
		say("free %s", m->path);
		LEAVE(OK);
	}
	say("violation: cuMemFree of %lx", (unsigned long)at);
	LEAVE(INVALID_VALUE);
}

static struct memory *find(CUdeviceptr at) {
	for (int i = 0; i < SLOTS; i++)
		if (memories[i].bytes && memories[i].live && at >= memories[i].at && at < memories[i].at + memories[i].bytes) return &memories[i];
	return NULL;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr at) {
	ENTER("cuMemGetAddressRange");
	NEEDS_CONTEXT();
	struct memory *m = find(at);
	if (!m) LEAVE(INVALID_VALUE);
	*base = m->at, *bytes = m->bytes;
	LEAVE(OK);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *h, CUdeviceptr at) {
	ENTER("cuIpcGetMemHandle");
	NEEDS_CONTEXT();
	struct memory *m = find(at);
	if (!m || m->imported) { say("violation: handle of memory that is not ours"); LEAVE(INVALID_VALUE); }
	memset(h, 0, sizeof *h);
	snprintf(h->reserved, sizeof h->reserved, "fake %d %s %d", getpid(), strrchr(m->path, '/') + 1, m->device);
	LEAVE(OK);
}
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle h, unsigned flags) {
	ENTER("cuIpcOpenMemHandle");
	NEEDS_CONTEXT();
	int pid = 0, device = -1;
	char name[64];
	if (flags > 1 || sscanf(h.reserved, "fake %d %63s %d", &pid, name, &device) != 3) LEAVE(INVALID_VALUE);
	if (pid == getpid()) { say("violation: a handle opened by its own process"); LEAVE(INVALID_CONTEXT); }
	if (device != current) { say("violation: a handle of device %d opened in a context of %d", device, current); LEAVE(INVALID_CONTEXT); }
	struct memory *m = slot();
	if (!m) LEAVE(OUT_OF_MEMORY);
	snprintf(m->path, sizeof m->path, "%s/%s", dir(), name);
	for (int i = 0; i < SLOTS; i++)
		if (&memories[i] != m && memories[i].live && memories[i].imported && !strcmp(memories[i].path, m->path)) { say("violation: a handle opened twice"); LEAVE(INVALID_HANDLE); }
	struct stat st;
	int fd = open(m->path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0) { if (fd >= 0) close(fd); LEAVE(INVALID_HANDLE); } // the owner freed it
	m->host = mmap(NULL, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (m->host == MAP_FAILED) LEAVE(OUT_OF_MEMORY);
	m->live = m->imported = 1, m->device = current, m->bytes = st.st_size;
	m->at = 0xE00000000000ull + ((uint64_t)next_id++ << 28);
	say("ipc_open %s", m->path);
	*out = m->at;
	LEAVE(OK);
}
CUresult cuIpcCloseMemHandle(CUdeviceptr at) {
	ENTER("cuIpcCloseMemHandle");
	NEEDS_CONTEXT();
	struct memory *m = find(at);
	if (!m || !m->imported || m->at != at) { say("violation: close of a handle that is not open"); LEAVE(INVALID_VALUE); }
	for (int i = 0; i < SLOTS; i++)
		for (int k = 0; streams[i].live && k < streams[i].queued; k++)
			if (streams[i].queue[k].dev >= m->at && streams[i].queue[k].dev < m->at + m->bytes) say("violation: memory closed while a copy is posted");
	m->live = 0;
	munmap(m->host, m->bytes);
	m->host = NULL;
	say("ipc_close %s", m->path);
	LEAVE(OK);
}

CUresult cuMemHostRegister_v2(char *at, size_t bytes, unsigned flags) {
	ENTER("cuMemHostRegister");
	NEEDS_CONTEXT();
	if (((uintptr_t)at | bytes) % 4096 || bytes == 0 || flags) { say("violation: registration of %p+%zu", at, bytes); LEAVE(INVALID_VALUE); }
	for (int i = 0; i < SLOTS; i++)
		if (!pins[i].live) {
			pins[i].live = 1, pins[i].at = at, pins[i].bytes = bytes;
			say("pin");
			LEAVE(OK);
		}
	LEAVE(OUT_OF_MEMORY);
}
CUresult cuMemHostUnregister(char *at) {
	ENTER("cuMemHostUnregister");
	NEEDS_CONTEXT();
	for (int i = 0; i < SLOTS; i++)
		if (pins[i].live && pins[i].at == at) {
			pins[i].live = 0;
			say("unpin");
			LEAVE(OK);
		}
	say("violation: %p is not registered", at);
	LEAVE(INVALID_VALUE);
}

// A stream is 1 + its slot.
CUresult cuStreamCreate(uint64_t *out, unsigned flags) {
	ENTER("cuStreamCreate");
	NEEDS_CONTEXT();
	if (flags > 1) LEAVE(INVALID_VALUE);
	for (int i = 0; i < SLOTS; i++)
		if (!streams[i].live) {
			streams[i].live = 1, streams[i].device = current, streams[i].queued = 0, streams[i].epoch = epoch[current];
			say("stream");
			*out = 1 + i;
			LEAVE(OK);
		}
	LEAVE(OUT_OF_MEMORY);
}
static struct stream *known(const char *who, uint64_t s) {
	if (s == 0 || s > SLOTS || !streams[s - 1].live) { say("violation: %s on a stream that is not there", who); return NULL; }
	if (streams[s - 1].device != current) { say("violation: %s on a stream of another device", who); return NULL; }
	return &streams[s - 1];
}
CUresult cuStreamDestroy_v2(uint64_t s) {
	ENTER("cuStreamDestroy");
	NEEDS_CONTEXT();
	struct stream *st = known(who, s);
	if (!st) LEAVE(INVALID_HANDLE);
	if (st->queued) say("violation: a stream destroyed with %d copies posted", st->queued);
	st->live = 0;
	say("unstream");
	LEAVE(OK);
}

static int post(const char *who, uint64_t s, int to_device, CUdeviceptr dev, char *host, size_t n) {
	struct stream *st = known(who, s);
	if (!st) return INVALID_HANDLE;
	struct memory *m = find(dev);
	if (!m || n == 0 || dev + n > m->at + m->bytes) { say("violation: %s of %lx+%zu, which is no live memory", who, (unsigned long)dev, n); return INVALID_VALUE; }
	if (m->device != current) { say("violation: %s of memory of another device", who); return INVALID_VALUE; }
	if (m->imported && access(m->path, F_OK) != 0) say("violation: %s of memory that its owner freed", who);
	int registered = 0;
	for (int i = 0; i < SLOTS; i++)
		if (pins[i].live && host >= pins[i].at && host + n <= pins[i].at + pins[i].bytes) registered = 1;
	if (!registered) { say("violation: %s with host memory that is not registered", who); return INVALID_VALUE; }
	if (st->queued == QUEUE) return OUT_OF_MEMORY;
	st->queue[st->queued++] = (struct copy){to_device, dev, host, n};
	return OK;
}
CUresult cuMemcpyDtoHAsync_v2(char *host, CUdeviceptr dev, size_t n, uint64_t s) {
	ENTER("cuMemcpyDtoHAsync");
	NEEDS_CONTEXT();
	LEAVE(post(who, s, 0, dev, host, n));
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dev, char *host, size_t n, uint64_t s) {
	ENTER("cuMemcpyHtoDAsync");
	NEEDS_CONTEXT();
	LEAVE(post(who, s, 1, dev, host, n));
}

static void land(struct stream *st) {
	for (int i = 0; i < st->queued; i++) {
		struct copy *c = &st->queue[i];
		struct memory *m = find(c->dev);
		if (!m) { say("violation: a copy landed in memory that is gone"); continue; }
		char *dev = m->host + (c->dev - m->at);
		if (c->to_device) memcpy(dev, c->host, c->n); else memcpy(c->host, dev, c->n);
	}
	st->queued = 0;
}

static void *late(void *arg) { // a DMA engine that the failed synchronization did not wait for
	struct stream *st = arg;
	const char *ms = getenv("FAKE_CUDA_LATE");
	usleep(1000 * (ms ? atoi(ms) : 200));
	pthread_mutex_lock(&lock);
	if (st->live && st->epoch == epoch[st->device]) { land(st); say("late"); }
	pthread_mutex_unlock(&lock);
	return NULL;
}

CUresult cuStreamSynchronize(uint64_t s) {
	ENTER("cuStreamSynchronize");
	NEEDS_CONTEXT();
	struct stream *st = known(who, s);
	if (!st) LEAVE(INVALID_HANDLE);
	const char *n = getenv("FAKE_CUDA_BREAK");
	if (n && ++syncs >= atoi(n)) {
		pthread_t t;
		if (syncs == atoi(n) && pthread_create(&t, NULL, late, st) == 0) pthread_detach(t);
		LEAVE(LAUNCH_FAILED);
	}
	land(st);
	LEAVE(OK);
}
