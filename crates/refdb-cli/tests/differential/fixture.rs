//! The repository that every case begins with, and the names of its objects in scripts.

use refdb_testkit::Format;
use refdb_testkit::objects::Objects;
use refdb_testkit::repo::Repo;

/// A repository with refs of every kind.
pub(crate) struct Fixture {
    pub(crate) repo: Repo,
}

impl Fixture {
    /// Makes the repository.
    pub(crate) fn new(format: Format) -> Fixture {
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
        let script = fixture.fill(&script.replace("            ", ""));
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
    pub(crate) fn fill(&self, text: &str) -> String {
        let objects = self.objects();
        let mut text = text.to_owned();
        for (index, commit) in objects.commits.iter().take(10).enumerate() {
            text = text.replace(&format!("{{c{index}}}"), commit);
        }
        for (index, tag) in objects.tags.iter().take(3).enumerate() {
            text = text.replace(&format!("{{t{index}}}"), &tag.id);
        }
        let odd = &objects.nested_tags[1];
        for (name, id) in [
            ("{nested}", odd.id.as_str()),
            ("{treetag}", &objects.tree_tag.id),
            ("{blobtag}", &objects.blob_tag.id),
            ("{lying}", &objects.lying_tag),
            ("{tree}", &objects.tree),
            ("{blob}", &objects.blob),
            ("{missing}", &objects.missing),
            ("{zero}", &self.repo.format().objects.zero()),
            ("{short}", &objects.commits[4][..12]),
        ] {
            text = text.replace(name, id);
        }
        text
    }
}
