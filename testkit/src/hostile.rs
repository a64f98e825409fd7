//! A corpus of hostile repositories: what somebody may put into a folder that another person then
//! looks at, by an archive, a clone, or a repository that several may write to.
//!
//! Each kind is made in a [`Scene`]: a repository inside the user's own clone, with a home and
//! another repository beside it, so that whatever leads out of it leads to something that counts.
//! A test runs commands there and compares the whole [`Tree`] before and after.
//!
//! ```no_run
//! use refdb_testkit::Format;
//! use refdb_testkit::hostile::{Scene, kinds};
//!
//! let folder = tempfile::tempdir().unwrap();
//! for kind in kinds(Format::FILES_SHA1) {
//!     let scene = Scene::make(folder.path(), Format::FILES_SHA1, kind.form);
//!     match kind.apply(&scene) {
//!         Ok(()) => println!("{}: {}", kind.name, kind.wants),
//!         Err(reason) => println!("{} cannot be made here: {reason}", kind.name),
//!     }
//! }
//! ```

mod circles;
mod elsewhere;
mod forge;
mod journals;
mod links;
mod locks;
mod migrations;
mod names;
mod owners;
mod scene;
mod settings;
mod strange;
mod tree;

pub use scene::{Form, Scene};
pub use tree::{Change, Tree};

use crate::format::{Format, RefFormat};

/// What came of making a kind: the reason, where this machine or this user cannot.
pub type Made = Result<(), String>;

/// One kind of hostile repository.
pub struct Kind {
    /// What it is, in a few words.
    pub name: String,
    /// What whoever made it is after.
    pub wants: &'static str,
    /// What kind of repository it is made of.
    pub form: Form,
    /// Whether the deep check has to find fault.
    pub told: bool,
    /// Whether it holds what a process of this user may have left, so that a command that only reads
    /// may finish that.
    pub genuine: bool,
    /// Whether SHA-256 makes it something else, so that it is tried with both.
    pub by_hash: bool,
    /// What else in the world belongs to the repository, for Git as well.
    pub belongs: Option<&'static str>,
    /// Where in the world a link leads that Git follows as well: what Git changes there may be changed,
    /// and a file may be there for a moment.
    pub leads: Option<&'static str>,
    /// Where commands are run, below the repository's folder.
    pub cwd: &'static str,
    only: Option<RefFormat>,
    make: Box<dyn Fn(&Scene) -> Made + Send + Sync>,
}

impl Kind {
    /// Makes it of a healthy scene.
    ///
    /// # Errors
    ///
    /// The reason why that cannot be done here.
    pub fn apply(&self, scene: &Scene) -> Made {
        (self.make)(scene)
    }

    fn bare(mut self) -> Kind {
        self.form = Form::Bare;
        self
    }

    fn told(self) -> Kind {
        self.told_if(true)
    }

    fn told_if(mut self, told: bool) -> Kind {
        self.told = told;
        self
    }

    fn leads(mut self, to: &'static str) -> Kind {
        self.leads = Some(to);
        self
    }

    fn genuine(mut self) -> Kind {
        self.genuine = true;
        self
    }

    fn by_hash(mut self) -> Kind {
        self.by_hash = true;
        self
    }

    fn owns(mut self, place: &'static str) -> Kind {
        self.belongs = Some(place);
        self
    }

    fn seen_from(mut self, cwd: &'static str) -> Kind {
        self.cwd = cwd;
        self
    }

    fn only(mut self, format: RefFormat) -> Kind {
        self.only = Some(format);
        self
    }
}

/// One line of a table of kinds.
fn kind(
    name: impl Into<String>,
    wants: &'static str,
    make: impl Fn(&Scene) -> Made + Send + Sync + 'static,
) -> Kind {
    Kind {
        name: name.into(),
        wants,
        form: Form::Work,
        told: false,
        genuine: false,
        by_hash: false,
        belongs: None,
        leads: None,
        cwd: "",
        only: None,
        make: Box::new(make),
    }
}

/// Returns every kind that there is with refs in that format.
pub fn kinds(format: Format) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for more in [
        journals::kinds(),
        migrations::kinds(),
        locks::kinds(),
        links::kinds(),
        names::kinds(),
        circles::kinds(),
        strange::kinds(),
        owners::kinds(),
        elsewhere::kinds(),
        settings::kinds(),
    ] {
        kinds.extend(more);
    }
    kinds.retain(|kind| kind.only.is_none_or(|only| only == format.refs));
    kinds
}
