/* Lists the branches of a repository in either format, and makes one: branches REPOSITORY [NEW-BRANCH] */
#include <refdb-git2.h>
#include <stdio.h>

static int fail(const char *what)
{
	const git_error *error = git_error_last();
	const char *unfound = refdb_git2_last_error();

	fprintf(stderr, "%s: %s\n", what, *unfound ? unfound : error ? error->message : "failed");
	return 1;
}

int main(int argc, char **argv)
{
	git_repository *repository;
	git_branch_iterator *branches;
	git_reference *branch, *head;
	git_branch_t kind;

	if (argc < 2)
		return 2;
	git_libgit2_init();
	if (refdb_git2_enable() < 0)
		return fail("refdb");
	if (git_repository_open(&repository, argv[1]) < 0 || refdb_git2_attach(repository) < 0)
		return fail(argv[1]);
	if (argc > 2) {
		if (git_repository_head(&head, repository) < 0 ||
		    git_reference_create(&branch, repository, argv[2],
		                         git_reference_target(head), 0, "branch: made in C") < 0)
			return fail(argv[2]);
		git_reference_free(branch);
		git_reference_free(head);
	}
	if (git_branch_iterator_new(&branches, repository, GIT_BRANCH_LOCAL) < 0)
		return fail("branches");
	while (git_branch_next(&branch, &kind, branches) == 0) {
		char id[GIT_OID_HEXSZ + 1];
		git_oid_tostr(id, sizeof(id), git_reference_target(branch));
		printf("%s %s\n", id, git_reference_name(branch));
		git_reference_free(branch);
	}
	git_branch_iterator_free(branches);
	git_repository_free(repository);
	git_libgit2_shutdown();
	return 0;
}
