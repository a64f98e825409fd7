//! What an edit asks for beside its change, in one byte.

use super::edit::Edit;

/// What an edit asks for beside its change.
#[derive(Clone, Copy)]
pub(super) struct Flags(u8);

impl Flags {
    const DEREF: u8 = 0;
    const CREATE_LOG: u8 = 1;
    const SKIP_LOG: u8 = 2;
    /// The object of the new value was looked up, so that its peeled value is known.
    const CHECKED: u8 = 3;

    pub(super) fn of(edit: &Edit<'_>, skips_logs: bool, checked: bool) -> Flags {
        let flag = |is_set: bool, flag: u8| u8::from(is_set) << flag;
        Flags(
            flag(edit.deref, Flags::DEREF)
                | flag(edit.create_log, Flags::CREATE_LOG)
                | flag(
                    edit.skip_log || skips_logs && !edit.is_log_only(),
                    Flags::SKIP_LOG,
                )
                | flag(checked, Flags::CHECKED),
        )
    }

    fn has(self, flag: u8) -> bool {
        self.0 >> flag & 1 != 0
    }

    pub(super) fn deref(self) -> bool {
        self.has(Flags::DEREF)
    }

    pub(super) fn create_log(self) -> bool {
        self.has(Flags::CREATE_LOG)
    }

    pub(super) fn skip_log(self) -> bool {
        self.has(Flags::SKIP_LOG)
    }

    pub(super) fn checked(self) -> bool {
        self.has(Flags::CHECKED)
    }

    /// Returns them with a peeled value that is known without a look.
    pub(super) fn with_peeled(self) -> Flags {
        Flags(self.0 | 1 << Flags::CHECKED)
    }
}
