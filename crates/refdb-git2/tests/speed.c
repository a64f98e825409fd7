/*
 * How long libgit2's own functions take, with its own refs or with refdb: speed own|refdb REPOSITORY ID COUNT
 *
 * Prints milliseconds of the processor, which other programs do not change: listing all refs, and looking up,
 * creating and deleting COUNT of them, one by one.
 */
#include <refdb-git2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void check(int answer, const char *step)
{
	const git_error *error = git_error_last();

	if (answer >= 0)
		return;
	fprintf(stderr, "%s: %d: %s\n", step, answer, error ? error->message : "");
	exit(1);
}
#define OK(step) check((step), #step)

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

int main(int argc, char **argv)
{
	git_repository *repository;
	git_reference_iterator *refs;
	git_reference *found;
	git_oid id;
	double times[5];
	char name[100];
	int at, count, listed = 0;

	if (argc != 5)
		return 2;
	count = atoi(argv[4]);
	git_libgit2_init();
	if (!strcmp(argv[1], "refdb"))
		OK(refdb_git2_enable());
	OK(git_repository_open(&repository, argv[2]));
	if (!strcmp(argv[1], "refdb"))
		OK(refdb_git2_attach(repository));
	OK(git_oid_fromstr(&id, argv[3]));
	/* Whatever is read once is read here. */
	OK(git_reference_lookup(&found, repository, "refs/heads/main"));
	git_reference_free(found);

	times[0] = now();
	OK(git_reference_iterator_new(&refs, repository));
	while (git_reference_next(&found, refs) == 0) {
		listed++;
		git_reference_free(found);
	}
	git_reference_iterator_free(refs);
	times[1] = now();
	for (at = 0; at < count; at++) {
		snprintf(name, sizeof(name), "refs/heads/dir%d/branch%d", at * 7 % 20, at * 7 % 20000);
		OK(git_reference_lookup(&found, repository, name));
		git_reference_free(found);
	}
	times[2] = now();
	for (at = 0; at < count; at++) {
		snprintf(name, sizeof(name), "refs/heads/new%d/branch%d", at % 20, at);
		OK(git_reference_create(&found, repository, name, &id, 0, "made"));
		git_reference_free(found);
	}
	times[3] = now();
	for (at = 0; at < count; at++) {
		snprintf(name, sizeof(name), "refs/heads/new%d/branch%d", at % 20, at);
		OK(git_reference_lookup(&found, repository, name));
		OK(git_reference_delete(found));
		git_reference_free(found);
	}
	times[4] = now();
	if (listed < 20000)
		return 3;
	for (at = 0; at < 4; at++)
		printf("%.2f%c", times[at + 1] - times[at], at < 3 ? ' ' : '\n');
	git_repository_free(repository);
	git_libgit2_shutdown();
	return 0;
}
