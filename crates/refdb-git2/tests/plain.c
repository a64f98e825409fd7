/*
 * A program that knows nothing of refdb: plain REPOSITORY CLONE WORKTREE
 *
 * It prints the refs of a repository, makes a branch, clones the repository, adds a worktree to it, commits there,
 * and prints the refs once more.
 */
#include <git2.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int answer, const char *step)
{
	const git_error *error = git_error_last();

	if (answer >= 0)
		return;
	fprintf(stderr, "%s: %d: %s\n", step, answer, error ? error->message : "");
	exit(1);
}
#define OK(step) check((step), #step)

static void show(git_repository *repository)
{
	git_reference_iterator *refs;
	git_reference *found;
	char id[GIT_OID_HEXSZ + 1];

	OK(git_repository_head(&found, repository));
	printf("HEAD %s\n", git_reference_name(found));
	git_reference_free(found);
	OK(git_reference_iterator_new(&refs, repository));
	while (git_reference_next(&found, refs) == 0) {
		if (git_reference_type(found) == GIT_REFERENCE_DIRECT)
			printf("%s %s\n", git_reference_name(found),
			       git_oid_tostr(id, sizeof(id), git_reference_target(found)));
		git_reference_free(found);
	}
	git_reference_iterator_free(refs);
}

int main(int argc, char **argv)
{
	git_repository *repository, *other;
	git_reference *head, *branch;
	git_worktree *worktree;
	git_signature *who;
	git_commit *parent;
	git_tree *tree;
	git_oid id;

	if (argc != 4)
		return 2;
	git_libgit2_init();
	OK(git_repository_open(&repository, argv[1]));
	show(repository);
	OK(git_repository_head(&head, repository));
	OK(git_reference_create(&branch, repository, "refs/heads/plain", git_reference_target(head), 0, "plain"));
	git_reference_free(branch);
	git_reference_free(head);

	OK(git_clone(&other, argv[1], argv[2], NULL));
	show(other);
	git_repository_free(other);

	OK(git_worktree_add(&worktree, repository, "tree", argv[3], NULL));
	OK(git_repository_open_from_worktree(&other, worktree));
	OK(git_repository_head(&head, other));
	OK(git_commit_lookup(&parent, other, git_reference_target(head)));
	OK(git_commit_tree(&tree, parent));
	OK(git_signature_new(&who, "One", "one@example.org", 1234567890, 0));
	OK(git_commit_create_v(&id, other, "HEAD", who, who, NULL, "in a worktree", tree, 1, parent));
	show(other);
	git_signature_free(who);
	git_tree_free(tree);
	git_commit_free(parent);
	git_reference_free(head);
	git_repository_free(other);
	git_worktree_free(worktree);
	git_repository_free(repository);
	git_libgit2_shutdown();
	return 0;
}
