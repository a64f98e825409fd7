//! What the crate `refdb-maintenance` stands on, and nobody else: any of it changes without notice.

pub use crate::repository::config::edit::{set as set_config, unset as unset_config};
pub use crate::repository::format::{format_and_path, ref_storage};
pub use crate::repository::moved::GITS_FOLDER;
pub use crate::repository::paths::real as real_path;
