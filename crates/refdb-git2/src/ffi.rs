//! libgit2 as its headers describe it: the functions that are called, and what they are given.
//!
//! Nothing is linked: a [`Functions`] is filled at run time, or by a host that has libgit2 inside.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[repr(C)]
        pub struct $name {
            _private: [u8; 0],
        }
    )*};
}

opaque! {
    /// `git_repository`.
    git_repository;
    /// `git_refdb`.
    git_refdb;
    /// `git_refdb_backend`: its members differ between the versions of libgit2.
    git_refdb_backend;
    /// `git_reference`.
    git_reference;
    /// `git_reflog`.
    git_reflog;
    /// `git_reflog_entry`.
    git_reflog_entry;
    /// `git_odb`.
    git_odb;
    /// `git_odb_object`.
    git_odb_object;
    /// `git_oid`: its members differ between the versions of libgit2.
    git_oid;
}

/// `git_signature`.
#[repr(C)]
pub struct git_signature {
    pub(crate) name: *const c_char,
    pub(crate) email: *const c_char,
    /// Seconds since 1970.
    pub(crate) time: i64,
    /// Minutes east of Greenwich.
    pub(crate) offset: c_int,
    pub(crate) sign: c_char,
}

/// `git_reference_iterator`, which stands at the beginning of an iterator of ours.
#[repr(C)]
pub(crate) struct git_reference_iterator {
    pub(crate) db: *mut git_refdb,
    pub(crate) next:
        unsafe extern "C" fn(*mut *mut git_reference, *mut git_reference_iterator) -> c_int,
    pub(crate) next_name:
        unsafe extern "C" fn(*mut *const c_char, *mut git_reference_iterator) -> c_int,
    pub(crate) free: unsafe extern "C" fn(*mut git_reference_iterator),
}

/// `git_strarray`.
#[repr(C)]
pub(crate) struct git_strarray {
    pub(crate) strings: *mut *mut c_char,
    pub(crate) count: usize,
}

/// The values of `git_error_code` that are given out, or understood.
pub(crate) mod code {
    use std::ffi::c_int;

    pub(crate) const OK: c_int = 0;
    pub(crate) const ERROR: c_int = -1;
    pub(crate) const NOT_FOUND: c_int = -3;
    pub(crate) const EXISTS: c_int = -4;
    pub(crate) const INVALID_SPEC: c_int = -12;
    pub(crate) const LOCKED: c_int = -14;
    pub(crate) const MODIFIED: c_int = -15;
    pub(crate) const DIRECTORY: c_int = -23;
    pub(crate) const ITER_OVER: c_int = -31;
}

/// The values of `git_error_t` that are given out.
pub(crate) mod class {
    use std::ffi::c_int;

    pub(crate) const SYSTEM: c_int = 2;
    pub(crate) const INVALID: c_int = 3;
    pub(crate) const REFERENCE: c_int = 4;
    pub(crate) const REPOSITORY: c_int = 6;
}

/// `GIT_REFERENCE_SYMBOLIC`.
pub(crate) const SYMBOLIC: c_int = 2;
/// `GIT_OPT_GET_EXTENSIONS` and the one after it.
pub(crate) const GET_EXTENSIONS: c_int = 33;
pub(crate) const SET_EXTENSIONS: c_int = 34;

macro_rules! functions {
    ($($name:ident: $type:ty,)*) => {
        /// The functions of libgit2 that are called, as the header has them (`refdb_git2_functions`).
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct Functions {
            /// The size of this structure, by which later versions are told apart.
            pub size: usize,
            $(
                #[doc = concat!("`", stringify!($name), "`.")]
                pub $name: $type,
            )*
        }

        /// Puts refdb in the place of libgit2's own refs in a Rust program that has libgit2 inside, as the crate
        /// `git2` brings it: wherever that makes refs for a repository, it gets refdb's if these are tables.
        /// It defines a function `refdb_functions`, which gives the [`Functions`] of that libgit2.
        ///
        /// The program's `build.rs` has to have calls come here:
        /// `println!("cargo::rustc-link-arg=-Wl,--wrap=git_refdb_backend_fs");`
        #[macro_export]
        macro_rules! wrap {
            () => {
                /// The functions of the libgit2 in this program.
                fn refdb_functions() -> $crate::Functions {
                    mod linked {
                        unsafe extern "C" {
                            $(pub(super) fn $name();)*
                            pub(super) fn __real_git_refdb_backend_fs(
                                _: *mut *mut $crate::git_refdb_backend,
                                _: *mut $crate::git_repository,
                            ) -> ::core::ffi::c_int;
                        }
                    }
                    // SAFETY: these are libgit2's functions, by the order of their names.
                    let mut functions = unsafe {
                        $crate::Functions::from_addresses([$(linked::$name as *const (),)*])
                    };
                    functions.git_refdb_backend_fs = linked::__real_git_refdb_backend_fs;
                    functions
                }

                /// In the place of libgit2's.
                ///
                /// # Safety
                /// As there.
                #[unsafe(no_mangle)]
                unsafe extern "C" fn __wrap_git_refdb_backend_fs(
                    out: *mut *mut $crate::git_refdb_backend,
                    repository: *mut $crate::git_repository,
                ) -> ::core::ffi::c_int {
                    unsafe { $crate::refdb_git2_backend_with(&refdb_functions(), out, repository) }
                }
            };
        }

        impl Functions {
            /// Takes the addresses of all functions, in their order.
            ///
            /// # Safety
            /// That is what they are.
            pub unsafe fn from_addresses(
                addresses: [*const (); size_of::<Self>() / size_of::<usize>() - 1],
            ) -> Self {
                let mut addresses = addresses.into_iter();
                let mut next = || addresses.next().unwrap_or(std::ptr::null());
                Functions {
                    size: size_of::<Self>(),
                    // SAFETY: the caller says so.
                    $($name: unsafe { std::mem::transmute::<*const (), $type>(next()) },)*
                }
            }

            /// Finds every function; the name of the first one that is not there otherwise.
            pub(crate) fn find(look: &dyn Fn(&CStr) -> *mut c_void) -> Result<Self, &'static CStr> {
                Ok(Functions {
                    size: size_of::<Self>(),
                    $($name: {
                        const NAME: &CStr = match CStr::from_bytes_with_nul(
                            concat!(stringify!($name), "\0").as_bytes(),
                        ) {
                            Ok(name) => name,
                            Err(_) => panic!("a name has no null byte"),
                        };
                        let found = look(NAME);
                        if found.is_null() {
                            return Err(NAME);
                        }
                        // SAFETY: what has this name in libgit2 is of this type.
                        unsafe { std::mem::transmute::<*mut c_void, $type>(found) }
                    },)*
                })
            }
        }
    };
}

type Made<T> = *mut *mut T;

functions! {
    git_libgit2_opts: unsafe extern "C" fn(c_int, ...) -> c_int,
    git_strarray_dispose: unsafe extern "C" fn(*mut c_void),
    git_error_set_str: unsafe extern "C" fn(c_int, *const c_char) -> c_int,
    git_error_clear: unsafe extern "C" fn(),
    git_repository_open: unsafe extern "C" fn(Made<git_repository>, *const c_char) -> c_int,
    git_repository_free: unsafe extern "C" fn(*mut git_repository),
    git_repository_path: unsafe extern "C" fn(*const git_repository) -> *const c_char,
    git_repository_odb: unsafe extern "C" fn(Made<git_odb>, *mut git_repository) -> c_int,
    git_repository_set_refdb: unsafe extern "C" fn(*mut git_repository, *mut git_refdb) -> c_int,
    git_refdb_new: unsafe extern "C" fn(Made<git_refdb>, *mut git_repository) -> c_int,
    git_refdb_free: unsafe extern "C" fn(*mut git_refdb),
    git_refdb_set_backend: unsafe extern "C" fn(*mut git_refdb, *mut git_refdb_backend) -> c_int,
    git_refdb_init_backend: unsafe extern "C" fn(*mut git_refdb_backend, c_uint) -> c_int,
    git_refdb_backend_fs: unsafe extern "C" fn(Made<git_refdb_backend>, *mut git_repository) -> c_int,
    git_odb_free: unsafe extern "C" fn(*mut git_odb),
    git_odb_read_header: unsafe extern "C" fn(*mut usize, *mut c_int, *mut git_odb, *const git_oid) -> c_int,
    git_odb_read: unsafe extern "C" fn(Made<git_odb_object>, *mut git_odb, *const git_oid) -> c_int,
    git_odb_object_data: unsafe extern "C" fn(*mut git_odb_object) -> *const c_void,
    git_odb_object_size: unsafe extern "C" fn(*mut git_odb_object) -> usize,
    git_odb_object_free: unsafe extern "C" fn(*mut git_odb_object),
    git_reference__alloc: unsafe extern "C" fn(*const c_char, *const git_oid, *const git_oid) -> *mut git_reference,
    git_reference__alloc_symbolic: unsafe extern "C" fn(*const c_char, *const c_char) -> *mut git_reference,
    git_reference_free: unsafe extern "C" fn(*mut git_reference),
    git_reference_type: unsafe extern "C" fn(*const git_reference) -> c_int,
    git_reference_name: unsafe extern "C" fn(*const git_reference) -> *const c_char,
    git_reference_target: unsafe extern "C" fn(*const git_reference) -> *const git_oid,
    git_reference_symbolic_target: unsafe extern "C" fn(*const git_reference) -> *const c_char,
    git_reflog_free: unsafe extern "C" fn(*mut git_reflog),
    git_reflog_entrycount: unsafe extern "C" fn(*mut git_reflog) -> usize,
    git_reflog_entry_byindex: unsafe extern "C" fn(*const git_reflog, usize) -> *const git_reflog_entry,
    git_reflog_entry_id_old: unsafe extern "C" fn(*const git_reflog_entry) -> *const git_oid,
    git_reflog_entry_id_new: unsafe extern "C" fn(*const git_reflog_entry) -> *const git_oid,
    git_reflog_entry_committer: unsafe extern "C" fn(*const git_reflog_entry) -> *const git_signature,
    git_reflog_entry_message: unsafe extern "C" fn(*const git_reflog_entry) -> *const c_char,
}
