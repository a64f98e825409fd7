/*
 * refdb behind libgit2: the refs of a repository in both of Git's formats, for programs that use libgit2
 * 1.5 to 1.9, or its main branch.
 *
 *     refdb_git2_enable();                        // once, after git_libgit2_init()
 *     git_repository_open(&repository, path);
 *     refdb_git2_attach(repository);              // before its refs are used
 *
 * Every function returns 0, or a negative code of libgit2's; git_error_last() says what is wrong. Only if
 * libgit2 itself was not found, refdb_git2_last_error() does. docs/libgit2.md has the rest.
 */
#ifndef REFDB_GIT2_H
#define REFDB_GIT2_H

#include <stddef.h>
#include <git2.h>
#include <git2/sys/refdb_backend.h>
#include <git2/sys/refs.h>
#include <git2/sys/repository.h>
/* Newer versions declare two of the functions there. */
#ifdef __has_include
# if __has_include(<git2/sys/errors.h>)
#  include <git2/sys/errors.h>
# endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A function of libgit2's, of whatever type it is. */
typedef void (*refdb_git2_function)(void);

/*
 * The functions of a libgit2 whose symbols cannot be found at run time, since it is linked into the program
 * statically. Initialise it with REFDB_GIT2_FUNCTIONS. It is copied.
 */
typedef struct {
	size_t size;
	refdb_git2_function git_libgit2_opts;
	refdb_git2_function git_strarray_dispose;
	refdb_git2_function git_error_set_str;
	refdb_git2_function git_error_clear;
	refdb_git2_function git_repository_open;
	refdb_git2_function git_repository_free;
	refdb_git2_function git_repository_path;
	refdb_git2_function git_repository_odb;
	refdb_git2_function git_repository_set_refdb;
	refdb_git2_function git_refdb_new;
	refdb_git2_function git_refdb_free;
	refdb_git2_function git_refdb_set_backend;
	refdb_git2_function git_refdb_init_backend;
	refdb_git2_function git_refdb_backend_fs;
	refdb_git2_function git_odb_free;
	refdb_git2_function git_odb_read_header;
	refdb_git2_function git_odb_read;
	refdb_git2_function git_odb_object_data;
	refdb_git2_function git_odb_object_size;
	refdb_git2_function git_odb_object_free;
	refdb_git2_function git_reference__alloc;
	refdb_git2_function git_reference__alloc_symbolic;
	refdb_git2_function git_reference_free;
	refdb_git2_function git_reference_type;
	refdb_git2_function git_reference_name;
	refdb_git2_function git_reference_target;
	refdb_git2_function git_reference_symbolic_target;
	refdb_git2_function git_reflog_free;
	refdb_git2_function git_reflog_entrycount;
	refdb_git2_function git_reflog_entry_byindex;
	refdb_git2_function git_reflog_entry_id_old;
	refdb_git2_function git_reflog_entry_id_new;
	refdb_git2_function git_reflog_entry_committer;
	refdb_git2_function git_reflog_entry_message;
} refdb_git2_functions;

#define REFDB_GIT2_FUNCTION(name) ((refdb_git2_function)(name))
#define REFDB_GIT2_FUNCTIONS { sizeof(refdb_git2_functions), \
	REFDB_GIT2_FUNCTION(git_libgit2_opts), \
	REFDB_GIT2_FUNCTION(git_strarray_dispose), \
	REFDB_GIT2_FUNCTION(git_error_set_str), \
	REFDB_GIT2_FUNCTION(git_error_clear), \
	REFDB_GIT2_FUNCTION(git_repository_open), \
	REFDB_GIT2_FUNCTION(git_repository_free), \
	REFDB_GIT2_FUNCTION(git_repository_path), \
	REFDB_GIT2_FUNCTION(git_repository_odb), \
	REFDB_GIT2_FUNCTION(git_repository_set_refdb), \
	REFDB_GIT2_FUNCTION(git_refdb_new), \
	REFDB_GIT2_FUNCTION(git_refdb_free), \
	REFDB_GIT2_FUNCTION(git_refdb_set_backend), \
	REFDB_GIT2_FUNCTION(git_refdb_init_backend), \
	REFDB_GIT2_FUNCTION(git_refdb_backend_fs), \
	REFDB_GIT2_FUNCTION(git_odb_free), \
	REFDB_GIT2_FUNCTION(git_odb_read_header), \
	REFDB_GIT2_FUNCTION(git_odb_read), \
	REFDB_GIT2_FUNCTION(git_odb_object_data), \
	REFDB_GIT2_FUNCTION(git_odb_object_size), \
	REFDB_GIT2_FUNCTION(git_odb_object_free), \
	REFDB_GIT2_FUNCTION(git_reference__alloc), \
	REFDB_GIT2_FUNCTION(git_reference__alloc_symbolic), \
	REFDB_GIT2_FUNCTION(git_reference_free), \
	REFDB_GIT2_FUNCTION(git_reference_type), \
	REFDB_GIT2_FUNCTION(git_reference_name), \
	REFDB_GIT2_FUNCTION(git_reference_target), \
	REFDB_GIT2_FUNCTION(git_reference_symbolic_target), \
	REFDB_GIT2_FUNCTION(git_reflog_free), \
	REFDB_GIT2_FUNCTION(git_reflog_entrycount), \
	REFDB_GIT2_FUNCTION(git_reflog_entry_byindex), \
	REFDB_GIT2_FUNCTION(git_reflog_entry_id_old), \
	REFDB_GIT2_FUNCTION(git_reflog_entry_id_new), \
	REFDB_GIT2_FUNCTION(git_reflog_entry_committer), \
	REFDB_GIT2_FUNCTION(git_reflog_entry_message) }

/*
 * Lets libgit2 open repositories whose refs are tables (the extension refstorage), beside those that it opens
 * already. Call it once. Each of them has to be attached then: without that libgit2 shows no refs of it.
 *
 * The plain function finds the libgit2 that is in the process, if there is one and no other; `_in` takes that
 * of a handle of dlopen(), `_with` that of a table.
 */
int refdb_git2_enable(void);
int refdb_git2_enable_in(void *handle);
int refdb_git2_enable_with(const refdb_git2_functions *functions);

/*
 * Gives a repository the refs of refdb in place of libgit2's own, in both formats. References, iterators and
 * transactions that were made before are to be freed first.
 *
 * Ownership: the repository frees what it gets. Threads: as libgit2 has it for a repository.
 */
int refdb_git2_attach(git_repository *repository);
int refdb_git2_attach_in(void *handle, git_repository *repository);
int refdb_git2_attach_with(const refdb_git2_functions *functions, git_repository *repository);

/*
 * Gives out a backend for a repository: one of refdb if its refs are tables, else libgit2's own. For a host that
 * links libgit2 statically and has its calls of git_refdb_backend_fs() come here, by the linker (--wrap). Among
 * the functions has to be the real one.
 */
int refdb_git2_backend_with(const refdb_git2_functions *functions, git_refdb_backend **out, git_repository *repository);

/*
 * Says why the last call of this thread found no libgit2; empty if all did.
 *
 * Ownership: it belongs to the library, until the next call of this thread.
 */
const char *refdb_git2_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
