package refdb

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// repository is one made by Git, with two commits.
type repository struct {
	t        *testing.T
	path     string
	one, two string
}

func (r *repository) git(arguments ...string) string {
	r.t.Helper()
	out, err := exec.Command("git", append([]string{"-C", r.path}, arguments...)...).CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v: %v\n%s", arguments, err, out)
	}
	return strings.TrimRight(string(out), "\n")
}

// inBoth runs a test in both formats.
func inBoth(t *testing.T, test func(*testing.T, *repository, *References)) {
	for _, format := range []string{"files", "reftable"} {
		t.Run(format, func(t *testing.T) {
			r := &repository{t: t, path: filepath.Join(t.TempDir(), "repo")}
			if err := os.Mkdir(r.path, 0o755); err != nil {
				t.Fatal(err)
			}
			r.git("init", "--quiet", "--bare", "--initial-branch=main", "--ref-format="+format)
			tree := r.git("hash-object", "-w", "-t", "tree", "/dev/null")
			r.one = r.git("commit-tree", "-m", "one", tree)
			r.two = r.git("commit-tree", "-m", "two", "-p", r.one, tree)
			r.git("update-ref", "refs/heads/main", r.one)
			refs, err := Open(r.path)
			if err != nil {
				t.Fatal(err)
			}
			defer refs.Close()
			test(t, r, refs)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func hash(name, id string) *plumbing.Reference {
	return plumbing.NewHashReference(plumbing.ReferenceName(name), plumbing.NewHash(id))
}

func TestReads(t *testing.T) {
	inBoth(t, func(t *testing.T, r *repository, refs *References) {
		head, err := refs.Reference(plumbing.HEAD)
		must(t, err)
		if head.Target() != "refs/heads/main" {
			t.Fatal(head)
		}
		main, err := refs.Reference("refs/heads/main")
		must(t, err)
		if main.Hash().String() != r.one {
			t.Fatal(main)
		}
		if _, err := refs.Reference("refs/heads/none"); err != plumbing.ErrReferenceNotFound {
			t.Fatal(err)
		}
		if _, err := refs.Reference("../config"); !errors.Is(err, ErrName) {
			t.Fatal(err)
		}
		if _, err := Open(r.path + "/none"); !errors.Is(err, ErrRepository) {
			t.Fatal(err)
		}
	})
}

func TestListsAsGit(t *testing.T) {
	inBoth(t, func(t *testing.T, r *repository, refs *References) {
		for i := range 1500 {
			must(t, refs.SetReference(hash(fmt.Sprintf("refs/heads/d%d/b%d", i%5, i), r.one)))
			if i == 1000 {
				must(t, refs.PackRefs())
				count, err := refs.CountLooseRefs()
				must(t, err)
				if count != 0 {
					t.Fatal(count)
				}
			}
		}
		var names []string
		iter, err := refs.IterReferences()
		must(t, err)
		must(t, iter.ForEach(func(ref *plumbing.Reference) error {
			names = append(names, string(ref.Name()))
			return nil
		}))
		expected := append([]string{"HEAD"}, strings.Split(r.git("for-each-ref", "--format=%(refname)"), "\n")...)
		if !reflect.DeepEqual(names, expected) {
			t.Fatalf("%d names in place of %d", len(names), len(expected))
		}
		r.git("refs", "verify")
	})
}

func TestChangesIfItIsAsExpected(t *testing.T) {
	inBoth(t, func(t *testing.T, r *repository, refs *References) {
		one, two := hash("refs/heads/main", r.one), hash("refs/heads/main", r.two)
		must(t, refs.CheckAndSetReference(two, one))
		if err := refs.CheckAndSetReference(two, one); !errors.Is(err, storage.ErrReferenceHasChanged) {
			t.Fatal(err)
		}
		if now := r.git("rev-parse", "refs/heads/main"); now != r.two {
			t.Fatal(now)
		}
		// The check may be of another ref, and of a symref.
		head := plumbing.NewSymbolicReference(plumbing.HEAD, "refs/heads/main")
		must(t, refs.CheckAndSetReference(hash("refs/heads/new", r.one), head))
		other := plumbing.NewSymbolicReference(plumbing.HEAD, "refs/heads/other")
		err := refs.CheckAndSetReference(hash("refs/heads/more", r.one), other)
		if !errors.Is(err, storage.ErrReferenceHasChanged) {
			t.Fatal(err)
		}
		must(t, refs.SetReference(other))
		if now := r.git("symbolic-ref", "HEAD"); now != "refs/heads/other" {
			t.Fatal(now)
		}
		must(t, refs.RemoveReference("refs/heads/new"))
		must(t, refs.RemoveReference("refs/heads/none"))
		if now := r.git("for-each-ref", "--format=%(refname)"); now != "refs/heads/main" {
			t.Fatal(now)
		}
	})
}

func TestGoGit(t *testing.T) {
	inBoth(t, func(t *testing.T, r *repository, refs *References) {
		objects := filesystem.NewStorage(osfs.New(r.path), cache.NewObjectLRUDefault())
		repo, err := git.Open(Storage(objects, refs), nil)
		must(t, err)
		head, err := repo.Head()
		must(t, err)
		commit, err := repo.CommitObject(head.Hash())
		must(t, err)
		if commit.Message != "one\n" {
			t.Fatal(commit)
		}
		before := r.git("rev-parse", "--show-ref-format")
		settings, err := repo.Config()
		must(t, err)
		settings.User.Name = "Ann"
		must(t, repo.SetConfig(settings))
		if now := r.git("rev-parse", "--show-ref-format"); now != before || r.git("config", "user.name") != "Ann" {
			t.Fatal(now)
		}
		_, err = repo.CreateTag("v1", head.Hash(), nil)
		must(t, err)
		if now := r.git("rev-parse", "refs/tags/v1"); now != r.one {
			t.Fatal(now)
		}
	})
}

func TestGoroutines(t *testing.T) {
	inBoth(t, func(t *testing.T, r *repository, refs *References) {
		var group sync.WaitGroup
		failures := make(chan error, 8)
		for g := range 8 {
			group.Go(func() {
				for i := range 10 {
					name := fmt.Sprintf("refs/heads/g%d/%d", g, i)
					if err := refs.SetReference(hash(name, r.one)); err != nil {
						failures <- err
						return
					}
					// The text of a failure is that of this goroutine's call.
					bad := fmt.Sprintf("../%d", g)
					if _, err := refs.Reference(plumbing.ReferenceName(bad)); !strings.Contains(err.Error(), bad) {
						failures <- err
						return
					}
					iter, err := refs.IterReferences()
					if err != nil {
						failures <- err
						return
					}
					if i%2 == 0 {
						iter.Close()
					}
				}
			})
		}
		group.Wait()
		close(failures)
		for err := range failures {
			t.Error(err)
		}
		runtime.GC()
		if all := strings.Count(r.git("for-each-ref", "refs/heads/g*/*"), "\n") + 1; all != 80 {
			t.Fatal(all)
		}
	})
}
