/* Functions that the compiler's shared C headers declare and its WASI libc does not have. CPython's
 * configure compiles against the headers, finds them, and so expects them at link time. None can do
 * anything useful without sockets, users or descriptors that wait: each fails as its manual says.
 * Prototypes are exact: a call through another type is a trap. */
#include <errno.h>
#include <stddef.h>

static int fails(void)
{
    errno = ENOSYS;
    return -1;
}

int epoll_create1(int flags) { return fails(); }
int epoll_ctl(int epoll, int operation, int fd, void *event) { return fails(); }
int epoll_wait(int epoll, void *events, int count, int timeout) { return fails(); }
int memfd_create(const char *name, unsigned flags) { return fails(); }
int setgroups(unsigned long count, const void *groups) { return fails(); }
int timerfd_create(int clock, int flags) { return fails(); }
int timerfd_gettime(int fd, void *now) { return fails(); }
int timerfd_settime(int fd, int flags, const void *new, void *old) { return fails(); }

void *gethostbyaddr(const void *address, unsigned length, int family) { return NULL; }
void *gethostbyname(const char *name) { return NULL; }
void *getprotobyname(const char *name) { return NULL; }
void *getservbyname(const char *name, const char *protocol) { return NULL; }
void *getservbyport(int port, const char *protocol) { return NULL; }
const char *hstrerror(int error) { return "there is no name service"; }
int *__h_errno_location(void)
{
    static int error;
    return &error;
}

char *bindtextdomain(const char *domain, const char *folder) { return NULL; }
char *dcgettext(const char *domain, const char *text, int category) { return (char *)text; }
char *dgettext(const char *domain, const char *text) { return (char *)text; }
char *gettext(const char *text) { return (char *)text; }
char *textdomain(const char *domain) { return (char *)domain; }
