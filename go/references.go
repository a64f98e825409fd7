// Package refdb gives go-git the refs of refdb: both of Git's formats, on disk exactly as Git has them.
//
//	refs, err := refdb.Open("/srv/repo.git")
//	...
//	defer refs.Close()
//	repo, err := git.Open(refdb.Storage(filesystem.NewStorage(files, cache), refs), nil)
//
// It needs librefdb (scripts/c-library), which pkg-config has to find. go-git knows SHA-1 alone, and so does
// this package.
package refdb

/*
#cgo pkg-config: refdb
#include <refdb.h>
#include <stdlib.h>
#include <string.h>

static refdb_bytes bytes(_GoString_ text) {
	refdb_bytes bytes = {(const uint8_t *)_GoStringPtr(text), _GoStringLen(text)};
	return bytes;
}

static refdb_status read_ref(const refdb_store *store, _GoString_ name, refdb_ref **out) {
	return refdb_read(store, bytes(name), out);
}

static refdb_edit edit(uint32_t change, _GoString_ name) {
	refdb_edit edit;
	memset(&edit, 0, sizeof edit);
	edit.change = change;
	edit.name = bytes(name);
	edit.flags = REFDB_NO_DEREF | REFDB_SKIP_OBJECT_CHECK;
	edit.new_id.len = edit.old_id.len = 20;
	return edit;
}

// One edit of a value, perhaps with a check of another ref, in one call from Go.
static refdb_status change(const refdb_store *store, uint32_t change, _GoString_ name, const uint8_t *id,
                           _GoString_ target, uint32_t expected, _GoString_ old_name,
                           const uint8_t *old_id, _GoString_ old_target) {
	refdb_transaction *transaction;
	refdb_edit edits[2] = {edit(change, name), edit(REFDB_VERIFY, old_name)};
	size_t len = 1;
	refdb_bytes none = {NULL, 0};
	refdb_edit *checked = &edits[0];
	if (id != NULL) memcpy(edits[0].new_id.bytes, id, 20);
	edits[0].target = bytes(target);
	if (expected != REFDB_EXPECT_ANY &&
	    (edits[0].name.len != edits[1].name.len ||
	     memcmp(edits[0].name.data, edits[1].name.data, edits[0].name.len) != 0)) {
		checked = &edits[1];
		len = 2;
	}
	checked->expected = expected;
	if (old_id != NULL) memcpy(checked->old_id.bytes, old_id, 20);
	checked->old_target = bytes(old_target);
	refdb_status status = refdb_transaction_begin(store, 0, NULL, none, &transaction);
	if (status == REFDB_OK) status = refdb_transaction_add(transaction, edits, len, NULL);
	if (status == REFDB_OK) status = refdb_transaction_commit(transaction, NULL);
	refdb_transaction_free(transaction);
	return status;
}
*/
import "C"

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"unsafe"

	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	format "github.com/go-git/go-git/v5/plumbing/format/config"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage"
)

// Kinds of failures, for errors.Is.
var (
	ErrLocked     = errors.New("refdb: another process holds a lock")
	ErrCorrupt    = errors.New("refdb: the refs are damaged")
	ErrName       = errors.New("refdb: no ref can have that name")
	ErrRepository = errors.New("refdb: there is no repository, or none that may be opened")
)

var kinds = map[C.refdb_status]error{
	C.REFDB_LOCKED:       ErrLocked,
	C.REFDB_CORRUPT:      ErrCorrupt,
	C.REFDB_INVALID_NAME: ErrName,
	C.REFDB_REPOSITORY:   ErrRepository,
	C.REFDB_REJECTED:     storage.ErrReferenceHasChanged,
}

// References are the refs of a repository, as a storer.ReferenceStorer. Any number of goroutines may use them.
type References struct {
	store *C.refdb_store
}

var _ storer.ReferenceStorer = (*References)(nil)

// call makes a call of the library and returns its code, and its failure as an error. The text of a failure
// belongs to the thread, which a goroutine may not leave in between.
func call(work func() C.refdb_status) (C.refdb_status, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	status := work()
	if status >= 0 {
		return status, nil
	}
	message := C.GoString(C.refdb_last_error().message)
	if kind, ok := kinds[status]; ok {
		return status, fmt.Errorf("%w: %s", kind, message)
	}
	return status, errors.New("refdb: " + message)
}

// Open opens the refs of the repository at path, or at the top of whose work tree path is.
func Open(path string) (*References, error) {
	cPath := C.CString(path)
	defer C.free(unsafe.Pointer(cPath))
	refs := new(References)
	if _, err := call(func() C.refdb_status {
		return C.refdb_open(cPath, 0, nil, 0, &refs.store)
	}); err != nil {
		return nil, err
	}
	var idLen C.uint8_t
	C.refdb_format(refs.store, nil, &idLen)
	if idLen != 20 {
		refs.Close()
		return nil, errors.New("refdb: go-git knows ids of SHA-1 alone")
	}
	runtime.SetFinalizer(refs, (*References).Close)
	return refs, nil
}

// Close frees what Open took; the refs are of no use afterwards. Iterators live on.
func (r *References) Close() error {
	runtime.SetFinalizer(r, nil)
	C.refdb_close(r.store)
	r.store = nil
	return nil
}

// Storage returns a storage of go-git with other refs. Its configuration says nothing of reftables, of which
// go-git knows nothing, and writing it changes nothing there.
func Storage(objects storage.Storer, refs *References) storage.Storer {
	return struct {
		rest
		*References
	}{rest{objects, refs.isReftable()}, refs}
}

// rest puts a storage's own refs one level lower, where they are hidden by others.
type rest struct {
	storage.Storer
	isReftable bool
}

func (r rest) Config() (*config.Config, error) {
	found, err := r.Storer.Config()
	if err == nil && r.isReftable {
		found.Raw.Section("extensions").RemoveOption("refstorage")
	}
	return found, err
}

func (r rest) SetConfig(given *config.Config) error {
	if r.isReftable {
		if given.Extensions.ObjectFormat == "" {
			// Else go-git would write that it is nothing, which Git refuses.
			given.Extensions.ObjectFormat = format.SHA1
		}
		given.Raw.SetOption("extensions", "", "refstorage", "reftable")
		defer given.Raw.Section("extensions").RemoveOption("refstorage")
	}
	return r.Storer.SetConfig(given)
}

func (r *References) isReftable() bool {
	var format C.refdb_ref_format
	C.refdb_format(r.store, &format, nil)
	return format == C.REFDB_FORMAT_REFTABLE
}

func goString(bytes C.refdb_bytes) string {
	return C.GoStringN((*C.char)(unsafe.Pointer(bytes.data)), C.int(bytes.len))
}

// reference returns what go-git makes of a ref; nil of a broken one.
func reference(found *C.refdb_ref) *plumbing.Reference {
	name := plumbing.ReferenceName(goString(found.name))
	if found.symref.len > 0 {
		return plumbing.NewSymbolicReference(name, plumbing.ReferenceName(goString(found.symref)))
	}
	if found.oid.len != 20 {
		return nil
	}
	var hash plumbing.Hash
	copy(hash[:], unsafe.Slice((*byte)(unsafe.Pointer(&found.oid.bytes[0])), 20))
	return plumbing.NewHashReference(name, hash)
}

// Reference reads a ref; plumbing.ErrReferenceNotFound if there is none. A symref is not followed.
func (r *References) Reference(name plumbing.ReferenceName) (*plumbing.Reference, error) {
	defer runtime.KeepAlive(r)
	var found *C.refdb_ref
	status, err := call(func() C.refdb_status { return C.read_ref(r.store, string(name), &found) })
	if err != nil {
		return nil, err
	}
	defer C.refdb_ref_free(found)
	if status != C.REFDB_MISSING {
		if ref := reference(found); ref != nil {
			return ref, nil
		}
	}
	return nil, plumbing.ErrReferenceNotFound
}

// SetReference sets a ref, whatever it holds.
func (r *References) SetReference(ref *plumbing.Reference) error {
	return r.CheckAndSetReference(ref, nil)
}

// value returns what a reference holds, in the two forms that it may have.
func value(ref *plumbing.Reference) (id *C.uint8_t, target string) {
	if ref.Type() == plumbing.SymbolicReference {
		return nil, string(ref.Target())
	}
	hash := ref.Hash()
	return (*C.uint8_t)(unsafe.Pointer(&hash[0])), ""
}

// CheckAndSetReference sets a ref if another one, mostly the same, holds what is expected;
// storage.ErrReferenceHasChanged if it does not. Nothing comes between the check and the change.
func (r *References) CheckAndSetReference(ref, old *plumbing.Reference) error {
	if ref == nil {
		return nil
	}
	defer runtime.KeepAlive(r)
	change := C.uint32_t(C.REFDB_UPDATE)
	if ref.Type() == plumbing.SymbolicReference {
		change = C.REFDB_SYMBOLIC
	}
	id, target := value(ref)
	expected, oldName, oldTarget := C.uint32_t(C.REFDB_EXPECT_ANY), "", ""
	var oldID *C.uint8_t
	if old != nil {
		oldID, oldTarget = value(old)
		oldName, expected = string(old.Name()), C.REFDB_EXPECT_OID
		if old.Type() == plumbing.SymbolicReference {
			expected = C.REFDB_EXPECT_SYMBOLIC
		}
	}
	_, err := call(func() C.refdb_status {
		return C.change(r.store, change, string(ref.Name()), id, target, expected, oldName, oldID, oldTarget)
	})
	return err
}

// RemoveReference deletes a ref and its reflog; one that is not there is fine.
func (r *References) RemoveReference(name plumbing.ReferenceName) error {
	defer runtime.KeepAlive(r)
	_, err := call(func() C.refdb_status {
		return C.change(r.store, C.REFDB_DELETE, string(name), nil, "", C.REFDB_EXPECT_ANY, "", nil, "")
	})
	return err
}

// CountLooseRefs counts the refs that PackRefs would pack.
func (r *References) CountLooseRefs() (int, error) {
	if r.isReftable() {
		return 0, nil
	}
	iter, err := r.iterate()
	if err != nil {
		return 0, err
	}
	defer iter.Close()
	count := 0
	for {
		found, err := iter.next()
		if err == io.EOF {
			return count, nil
		}
		if err != nil {
			return 0, err
		}
		isRef := strings.HasPrefix(goString(found.name), "refs/")
		if isRef && found.symref.len == 0 && found.flags&C.REFDB_REF_PACKED == 0 {
			count++
		}
	}
}

// PackRefs packs loose refs, or compacts tables.
func (r *References) PackRefs() error {
	defer runtime.KeepAlive(r)
	_, err := call(func() C.refdb_status { return C.refdb_optimize(r.store, false) })
	return err
}

// IterReferences lists HEAD and all refs in the order of their names, as they are at this moment.
func (r *References) IterReferences() (storer.ReferenceIter, error) {
	iter, err := r.iterate()
	if err != nil {
		return nil, err
	}
	return iter, nil
}

func (r *References) iterate() (*iterator, error) {
	defer runtime.KeepAlive(r)
	iter := new(iterator)
	if _, err := call(func() C.refdb_status { return C.refdb_refs_open(r.store, nil, &iter.refs) }); err != nil {
		return nil, err
	}
	records := C.calloc(batch, C.size_t(unsafe.Sizeof(C.refdb_ref{})))
	iter.records = unsafe.Slice((*C.refdb_ref)(records), batch)
	runtime.SetFinalizer(iter, (*iterator).Close)
	return iter, nil
}

// batch is how many refs come with one call of the library.
const batch = 1024

type iterator struct {
	refs       *C.refdb_refs
	records    []C.refdb_ref
	at, filled int
}

// next returns the next record, which stays until the call after.
func (i *iterator) next() (*C.refdb_ref, error) {
	if i.refs == nil {
		return nil, io.EOF
	}
	if i.at == i.filled {
		var count C.size_t
		_, err := call(func() C.refdb_status {
			return C.refdb_refs_next(i.refs, &i.records[0], batch, &count)
		})
		if err != nil {
			return nil, err
		}
		if count == 0 {
			return nil, io.EOF
		}
		i.at, i.filled = 0, int(count)
	}
	i.at++
	return &i.records[i.at-1], nil
}

// Next returns the next ref; io.EOF behind the last one.
func (i *iterator) Next() (*plumbing.Reference, error) {
	for {
		found, err := i.next()
		if err != nil {
			return nil, err
		}
		ref := reference(found)
		if ref != nil && (ref.Name() == plumbing.HEAD || strings.HasPrefix(string(ref.Name()), "refs/")) {
			return ref, nil
		}
	}
}

// ForEach calls a function for each ref, until it fails or returns storer.ErrStop.
func (i *iterator) ForEach(each func(*plumbing.Reference) error) error {
	defer i.Close()
	for {
		ref, err := i.Next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = each(ref)
		}
		if err == storer.ErrStop {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Close frees what the iterator holds.
func (i *iterator) Close() {
	if i.refs == nil {
		return
	}
	runtime.SetFinalizer(i, nil)
	C.refdb_refs_free(i.refs)
	C.free(unsafe.Pointer(&i.records[0]))
	i.refs, i.records = nil, nil
}
