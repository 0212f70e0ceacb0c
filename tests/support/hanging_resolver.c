/* Preloaded into a program: the look-up of silent.example never ends, and any other name under .example is this machine. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

typedef int look_up(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    look_up *real = (look_up *)dlsym(RTLD_NEXT, "getaddrinfo");
    const char *domain = name ? strrchr(name, '.') : NULL;
    if (!domain || strcmp(domain, ".example"))
        return real(name, service, hints, found);
    while (!strcmp(name, "silent.example"))
        pause();
    return real("127.0.0.1", service, hints, found);
}
