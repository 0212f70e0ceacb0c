/* A PKCS #11 driver that is the one at DRIVER, but for this: a signature does not come back while the file HANGS is there. */

#include <dlfcn.h>
#include <stddef.h>
#include <unistd.h>

typedef unsigned long Word;
typedef Word (*Sign)(Word session, unsigned char *message, Word length, unsigned char *signature, Word *size);

/* CK_FUNCTION_LIST of PKCS #11 2.40: a version, and 68 functions, of which C_Sign is the 44th. */
struct list {
    unsigned char version[2];
    void *functions[68];
};

enum { SIGN = 43 };

static struct list ours;
static Sign theirs;

static Word hanging_sign(Word session, unsigned char *message, Word length, unsigned char *signature, Word *size)
{
    while (access(HANGS, F_OK) == 0)
        usleep(10000);
    return theirs(session, message, length, signature, size);
}

Word C_GetFunctionList(struct list **found)
{
    struct list *driver;
    void *library = dlopen(DRIVER, RTLD_NOW);
    Word (*get)(struct list **) = library == NULL ? NULL : dlsym(library, "C_GetFunctionList");

    if (get == NULL || get(&driver) != 0)
        return 5; /* CKR_GENERAL_ERROR */
    ours = *driver;
    theirs = driver->functions[SIGN];
    ours.functions[SIGN] = hanging_sign;
    *found = &ours;
    return 0;
}
