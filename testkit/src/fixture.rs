//! The repository that scripts of commands begin with, and the names of its objects in scripts.
//!
//! ```
//! use refdb_testkit::{Format, fixture::Fixture};
//!
//! let fixture = Fixture::new(Format::FILES_SHA1);
//! let main = fixture.repo.git(["rev-parse", "main"]).run().text();
//! assert_eq!(fixture.fill(b"{c3}"), main.as_bytes());
//! ```

use bstr::{BString, ByteSlice};

use crate::format::Format;
use crate::objects::Objects;
use crate::repo::Repo;

/// A repository with refs of every kind.
#[derive(Debug)]
pub struct Fixture {
    /// The repository.
    pub repo: Repo,
}

impl Fixture {
    /// Makes the repository.
    pub fn new(format: Format) -> Fixture {
        let repo = Repo::init(format);
        let fixture = Fixture { repo };
        let script = "create refs/heads/main {c3}
            create refs/heads/topic {c1}
            create refs/heads/dir/leaf {c2}
            create refs/tags/annotated {t0}
            create refs/tags/light {c2}
            create refs/tags/nested {nested}
            create refs/remotes/origin/main {c2}
            create refs/notes/blob {blob}
            symref-create refs/remotes/origin/HEAD refs/remotes/origin/main
            symref-create refs/heads/sym refs/heads/topic
            symref-create refs/heads/dangling refs/heads/none
            ";
        let script = fixture.fill(script.replace("            ", "").as_bytes());
        fixture.repo.update_refs(script);
        let pack = fixture.repo.git(["pack-refs"]);
        pack.run().ok();
        let log = ["update-ref", "-m", "move", "refs/heads/topic"];
        let id = &fixture.objects().commits[2];
        fixture.repo.git(log).arg(id).run().ok();
        fixture
    }

    fn objects(&self) -> &'static Objects {
        self.repo.objects()
    }

    /// Replaces `{c0}` and the like by object ids.
    pub fn fill(&self, text: &[u8]) -> BString {
        let mut text = BString::from(text);
        if !text.contains(&b'{') {
            return text;
        }
        let objects = self.objects();
        let mut replace = |name: &str, id: &str| text = text.replace(name, id).into();
        for (index, commit) in objects.commits.iter().take(10).enumerate() {
            replace(&format!("{{c{index}}}"), commit);
        }
        for (index, tag) in objects.tags.iter().take(3).enumerate() {
            replace(&format!("{{t{index}}}"), &tag.id);
        }
        for (name, id) in [
            ("{nested}", objects.nested_tags[1].id.as_str()),
            ("{treetag}", &objects.tree_tag.id),
            ("{blobtag}", &objects.blob_tag.id),
            ("{lying}", &objects.lying_tag),
            ("{tree}", &objects.tree),
            ("{blob}", &objects.blob),
            ("{missing}", &objects.missing),
            ("{zero}", &self.repo.format().zero()),
            ("{short}", &objects.commits[4][..12]),
        ] {
            replace(name, id);
        }
        text
    }
}
