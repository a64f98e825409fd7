/*
 * Every callback of a backend, through libgit2's own functions: callbacks REPOSITORY ONE TWO TAG
 *
 * The repository has main at ONE, HEAD leads there, and TAG is an annotated tag of ONE, without a ref. What is
 * left behind is compared with what Git leaves behind after the same steps (scripts/git2).
 */
#include <refdb-git2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static git_repository *repo;

/* What a step is expected to return. */
static void check(int expected, int answer, const char *step, int line)
{
	const git_error *error = git_error_last();

	if (answer == expected)
		return;
	fprintf(stderr, "line %d: %s returns %d, not %d: %s\n", line, step, answer, expected,
	        error ? error->message : "");
	exit(1);
}
#define IS(expected, step) check((expected), (step), #step, __LINE__)
#define OK(step) IS(0, step)
#define HOLDS(what) check(1, (what) ? 1 : 0, #what, __LINE__)

static git_oid one, two, tag;

/* Where libgit2 knows several hashes, an id says which one it is of. */
static int parse(git_oid *id, const char *hex)
{
#ifdef GIT_EXPERIMENTAL_SHA256
	return git_oid_fromstr(id, hex, strlen(hex) == 40 ? GIT_OID_SHA1 : GIT_OID_SHA256);
#else
	return git_oid_fromstr(id, hex);
#endif
}

static int is_at(const char *name, const git_oid *id)
{
	git_oid found;

	OK(git_reference_name_to_id(&found, repo, name));
	return git_oid_equal(&found, id);
}

static int create(const char *name, const git_oid *id, int force, const char *message)
{
	git_reference *made = NULL;
	int answer = git_reference_create(&made, repo, name, id, force, message);

	git_reference_free(made);
	return answer;
}

static int create_matching(const char *name, const git_oid *id, const git_oid *old)
{
	git_reference *made = NULL;
	int answer = git_reference_create_matching(&made, repo, name, id, 1, old, "matching");

	git_reference_free(made);
	return answer;
}

static int symbolic(const char *name, const char *target, const char *old)
{
	git_reference *made = NULL;
	int answer = old ? git_reference_symbolic_create_matching(&made, repo, name, target, 1, old, "symbolic")
	                 : git_reference_symbolic_create(&made, repo, name, target, 1, "symbolic");

	git_reference_free(made);
	return answer;
}

static int lookup(const char *name)
{
	git_reference *found = NULL;
	int answer = git_reference_lookup(&found, repo, name);

	git_reference_free(found);
	return answer;
}

static int rename_ref(const char *from, const char *to, int force)
{
	git_reference *found, *renamed = NULL;
	int answer;

	OK(git_reference_lookup(&found, repo, from));
	answer = git_reference_rename(&renamed, found, to, force, "renamed");
	if (!answer)
		HOLDS(!strcmp(git_reference_name(renamed), to));
	git_reference_free(found);
	git_reference_free(renamed);
	return answer;
}

static int delete_ref(const char *name)
{
	git_reference *found;
	int answer;

	OK(git_reference_lookup(&found, repo, name));
	answer = git_reference_delete(found);
	git_reference_free(found);
	return answer;
}

/* The names that a pattern matches, each with a space behind it. */
static const char *matching(const char *glob)
{
	static char names[1000];
	git_reference_iterator *refs;
	const char *name;
	int answer;

	names[0] = 0;
	OK(glob ? git_reference_iterator_glob_new(&refs, repo, glob) : git_reference_iterator_new(&refs, repo));
	while (!(answer = git_reference_next_name(&name, refs)))
		strcat(strcat(names, name), " ");
	IS(GIT_ITEROVER, answer);
	git_reference_iterator_free(refs);
	return names;
}

static void reading(void)
{
	git_reference_iterator *refs;
	git_reference *found;
	int count = 0, answer;

	IS(GIT_ENOTFOUND, lookup("refs/heads/none"));
	IS(GIT_ENOTFOUND, lookup("refs/heads/main/below"));
	IS(GIT_EINVALIDSPEC, lookup("refs/heads/a..b"));
	OK(git_reference_lookup(&found, repo, "HEAD"));
	HOLDS(git_reference_type(found) == GIT_REFERENCE_SYMBOLIC);
	HOLDS(!strcmp(git_reference_symbolic_target(found), "refs/heads/main"));
	git_reference_free(found);
	HOLDS(!strcmp(matching(NULL), "refs/heads/a/b refs/heads/main refs/notes/commits refs/tags/v1 "));
	HOLDS(!strcmp(matching("refs/heads/*"), "refs/heads/a/b refs/heads/main "));
	HOLDS(!strcmp(matching("refs/*/v?"), "refs/tags/v1 "));
	HOLDS(!strcmp(matching("refs/none/*"), ""));
	HOLDS(!strcmp(matching("HEAD"), ""));
	OK(git_reference_iterator_new(&refs, repo));
	while (!(answer = git_reference_next(&found, refs))) {
		count++;
		HOLDS(git_reference_owner(found) == repo);
		/* An annotated tag tells what it is of, without being read. */
		if (!strcmp(git_reference_name(found), "refs/tags/v1"))
			HOLDS(git_reference_target_peel(found) &&
			      git_oid_equal(git_reference_target_peel(found), &one));
		git_reference_free(found);
	}
	IS(GIT_ITEROVER, answer);
	git_reference_iterator_free(refs);
	HOLDS(count == 4);
}

static void writing(void)
{
	git_oid none;
	git_refdb *refdb;

	none = one;
	memset(none.id, 0, sizeof(none.id));
	OK(create("refs/heads/a/b", &one, 0, "made"));
	OK(create("refs/notes/commits", &one, 0, "a note"));
	OK(create("refs/tags/v1", &tag, 0, NULL));
	OK(git_repository_refdb(&refdb, repo));
	OK(git_refdb_compress(refdb));
	git_refdb_free(refdb);
	reading();
	IS(GIT_EEXISTS, create("refs/heads/a/b", &two, 0, "again"));
	OK(create("refs/heads/a/b", &two, 1, "forced"));
	IS(GIT_EDIRECTORY, create("refs/heads/a", &one, 1, "in the way"));
	HOLDS(create("refs/heads/main/below", &one, 1, "in the way") < 0);
	IS(GIT_EMODIFIED, create_matching("refs/heads/a/b", &one, &one));
	IS(GIT_EMODIFIED, create_matching("refs/heads/a/b", &one, &none));
	/* All zero it says of no hash that it is of that. */
	memset(&none, 0, sizeof(none));
	IS(GIT_EMODIFIED, create_matching("refs/heads/a/b", &one, &none));
	IS(GIT_ENOTFOUND, create_matching("refs/heads/new", &one, &two));
	OK(create_matching("refs/heads/a/b", &one, &two));
	OK(create_matching("refs/heads/new", &two, &none));
	/* What changes nothing brings no entry. */
	OK(create("refs/heads/new", &two, 1, "the same"));
	/* HEAD leads there. */
	OK(create("refs/heads/main", &two, 1, "moved"));
	HOLDS(is_at("HEAD", &two));
	OK(symbolic("refs/heads/sym", "refs/heads/new", NULL));
	HOLDS(is_at("refs/heads/sym", &two));
	IS(GIT_EMODIFIED, symbolic("refs/heads/sym", "refs/heads/main", "refs/heads/none"));
	OK(symbolic("refs/heads/sym", "refs/heads/main", "refs/heads/new"));
}

static void renaming(void)
{
	IS(GIT_EEXISTS, rename_ref("refs/heads/new", "refs/heads/main", 0));
	OK(rename_ref("refs/heads/new", "refs/heads/new/below", 0));
	OK(rename_ref("refs/heads/new/below", "refs/heads/newer", 0));
	OK(rename_ref("refs/heads/sym", "refs/heads/symref", 0));
	IS(GIT_ENOTFOUND, lookup("refs/heads/sym"));
	OK(delete_ref("refs/heads/symref"));
	HOLDS(is_at("refs/heads/main", &two));
	/* HEAD goes along with its branch. */
	OK(rename_ref("refs/heads/main", "refs/heads/trunk", 0));
	HOLDS(is_at("HEAD", &two));
}

static void deleting(void)
{
	git_reference *seen;

	OK(git_reference_lookup(&seen, repo, "refs/notes/commits"));
	OK(create("refs/notes/commits", &two, 1, "another note"));
	IS(GIT_EMODIFIED, git_reference_delete(seen));
	git_reference_free(seen);
	OK(delete_ref("refs/notes/commits"));
	IS(GIT_ENOTFOUND, lookup("refs/notes/commits"));
	IS(0, git_reference_has_log(repo, "refs/notes/commits"));
	OK(git_reference_remove(repo, "refs/heads/a/b"));
	OK(create("refs/heads/a", &one, 0, "after it"));
}

static void logs(void)
{
	git_reflog *log;
	git_signature *who;
	const git_reflog_entry *entry;

	OK(git_signature_new(&who, "Ann", "ann@example.org", 1234567890, -150));
	IS(0, git_reference_has_log(repo, "refs/tags/v1"));
	OK(git_reference_ensure_log(repo, "refs/tags/v1"));
	IS(1, git_reference_has_log(repo, "refs/tags/v1"));
	OK(create("refs/tags/v1", &one, 1, "logged"));
	OK(git_reflog_read(&log, repo, "refs/tags/v1"));
	HOLDS(git_reflog_entrycount(log) == 1);
	entry = git_reflog_entry_byindex(log, 0);
	HOLDS(git_oid_equal(git_reflog_entry_id_old(entry), &tag));
	HOLDS(git_oid_equal(git_reflog_entry_id_new(entry), &one));
	HOLDS(!strcmp(git_reflog_entry_message(entry), "logged"));
	HOLDS(!strcmp(git_reflog_entry_committer(entry)->name, "One"));
	OK(git_reflog_append(log, &two, who, "by hand"));
	OK(git_reflog_write(log));
	git_reflog_free(log);
	OK(git_reflog_read(&log, repo, "refs/tags/v1"));
	HOLDS(git_reflog_entrycount(log) == 2);
	entry = git_reflog_entry_byindex(log, 0);
	HOLDS(!strcmp(git_reflog_entry_message(entry), "by hand"));
	HOLDS(git_reflog_entry_committer(entry)->when.time == 1234567890);
	HOLDS(git_reflog_entry_committer(entry)->when.offset == -150);
	git_reflog_free(log);
	OK(git_reflog_read(&log, repo, "refs/tags/v1"));
	OK(git_reflog_rename(repo, "refs/tags/v1", "refs/tags/moved"));
	HOLDS(git_reflog_write(log) < 0);
	git_reflog_free(log);
	IS(0, git_reference_has_log(repo, "refs/tags/v1"));
	IS(GIT_ENOTFOUND, git_reflog_rename(repo, "refs/tags/v1", "refs/tags/moved"));
	OK(git_reference_ensure_log(repo, "refs/tags/short"));
	OK(git_reflog_delete(repo, "refs/tags/short"));
	IS(0, git_reference_has_log(repo, "refs/tags/short"));
	git_signature_free(who);
}

static void transactions(const char *path)
{
	git_transaction *one_of, *other;
	git_repository *second;
	git_reflog *log;
	git_signature *who;

	OK(git_signature_new(&who, "Bob", "bob@example.org", 1234567890, 60));
	OK(git_transaction_new(&one_of, repo));
	OK(git_transaction_lock_ref(one_of, "refs/heads/t1"));
	OK(git_transaction_lock_ref(one_of, "refs/heads/a"));
	OK(git_transaction_lock_ref(one_of, "refs/heads/newer"));
	OK(git_transaction_lock_ref(one_of, "refs/tags/moved"));
	IS(GIT_ELOCKED, git_transaction_lock_ref(one_of, "refs/heads/a"));
	/* A lock is a lock for everybody else. */
	OK(git_repository_open(&second, path));
	OK(refdb_git2_attach(second));
	OK(git_transaction_new(&other, second));
	IS(GIT_ELOCKED, git_transaction_lock_ref(other, "refs/heads/a"));
	git_transaction_free(other);
	HOLDS(system("git -C \"$REPOSITORY\" update-ref refs/heads/a HEAD 2>/dev/null") != 0);
	OK(git_transaction_set_target(one_of, "refs/heads/t1", &two, who, "in a transaction"));
	OK(git_transaction_remove(one_of, "refs/heads/newer"));
	OK(git_transaction_set_symbolic_target(one_of, "refs/heads/a", "refs/heads/trunk", who, "led away"));
	OK(git_reflog_read(&log, repo, "refs/tags/moved"));
	OK(git_reflog_drop(log, 0, 1));
	OK(git_transaction_set_reflog(one_of, "refs/tags/moved", log));
	git_reflog_free(log);
	OK(git_transaction_commit(one_of));
	git_transaction_free(one_of);
	HOLDS(is_at("refs/heads/t1", &two));
	IS(GIT_ENOTFOUND, lookup("refs/heads/newer"));
	/* HEAD, and the branch that it leads to. */
	OK(git_transaction_new(&one_of, repo));
	OK(git_transaction_lock_ref(one_of, "refs/heads/trunk"));
	OK(git_transaction_lock_ref(one_of, "HEAD"));
	OK(git_transaction_set_target(one_of, "refs/heads/trunk", &one, who, "both"));
	OK(git_transaction_set_symbolic_target(one_of, "HEAD", "refs/heads/t1", who, "both"));
	OK(git_transaction_commit(one_of));
	git_transaction_free(one_of);
	HOLDS(is_at("HEAD", &two) && is_at("refs/heads/trunk", &one));
	/* Of one that has an edit which is refused nothing is written. */
	OK(git_transaction_new(&one_of, repo));
	OK(git_transaction_lock_ref(one_of, "refs/heads/t3"));
	OK(git_transaction_lock_ref(one_of, "refs/heads/t4"));
	OK(git_transaction_lock_ref(one_of, "refs/heads/t5"));
	OK(git_transaction_set_target(one_of, "refs/heads/t3", &two, who, "never"));
	OK(git_transaction_set_symbolic_target(one_of, "refs/heads/t4", "no name", who, "refused"));
	OK(git_transaction_set_target(one_of, "refs/heads/t5", &two, who, "never"));
	HOLDS(git_transaction_commit(one_of) < 0);
	git_transaction_free(one_of);
	IS(GIT_ENOTFOUND, lookup("refs/heads/t3"));
	IS(GIT_ENOTFOUND, lookup("refs/heads/t5"));
	/* One that is given up leaves nothing behind. */
	OK(git_transaction_new(&one_of, repo));
	OK(git_transaction_lock_ref(one_of, "refs/heads/t2"));
	OK(git_transaction_set_target(one_of, "refs/heads/t2", &two, who, "never"));
	git_transaction_free(one_of);
	IS(GIT_ENOTFOUND, lookup("refs/heads/t2"));
	OK(git_transaction_new(&other, second));
	OK(git_transaction_lock_ref(other, "refs/heads/t2"));
	git_transaction_free(other);
	git_repository_free(second);
	git_signature_free(who);
}

/* What is configured while a repository is open. */
static void settings(void)
{
	git_config *config;

	OK(create("refs/tags/silent", &one, 0, "silent"));
	IS(0, git_reference_has_log(repo, "refs/tags/silent"));
	OK(git_repository_config(&config, repo));
	OK(git_config_set_string(config, "core.logAllRefUpdates", "always"));
	git_config_free(config);
	OK(create("refs/tags/told", &one, 0, "told"));
	IS(1, git_reference_has_log(repo, "refs/tags/told"));
}

#ifdef HAS_INIT
/* What libgit2 calls for a repository that is being made: of one that is there it changes nothing. */
static void beginning(void)
{
	git_refdb_backend *backend;
	refdb_git2_functions functions = REFDB_GIT2_FUNCTIONS;
	int there = 0;

	/* Else refs in files were libgit2's own. */
	setenv("REFDB_GIT2_FORMATS", "all", 1);
	OK(refdb_git2_backend_with(&functions, &backend, repo));
	OK(backend->init(backend, "refs/heads/other", 0777, 0));
	OK(backend->exists(&there, backend, "refs/heads/main"));
	HOLDS(there);
	OK(backend->exists(&there, backend, "refs/heads/other"));
	HOLDS(!there);
	OK(backend->init(backend, "refs/heads/other", 0777, 2));
	HOLDS(git_repository_head_unborn(repo) == 1);
	OK(backend->init(backend, "refs/heads/main", 0777, 2));
	backend->free(backend);
}
#endif

int main(int argc, char **argv)
{
	if (argc != 5)
		return 2;
	git_libgit2_init();
	OK(refdb_git2_enable());
	OK(git_repository_open(&repo, argv[1]));
	OK(refdb_git2_attach(repo));
	OK(git_repository_set_ident(repo, "One", "one@example.org"));
	OK(parse(&one, argv[2]));
	OK(parse(&two, argv[3]));
	OK(parse(&tag, argv[4]));
	setenv("REPOSITORY", argv[1], 1);
#ifdef HAS_INIT
	beginning();
#endif
	writing();
	renaming();
	deleting();
	logs();
	transactions(argv[1]);
	settings();
	git_repository_free(repo);
	git_libgit2_shutdown();
	puts("done");
	return 0;
}
