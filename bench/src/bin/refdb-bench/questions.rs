//! The workloads in words: what people ask, and in which order they are answered.

use refdb_bench::WORKLOADS;

/// What is asked about one kind of work.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) title: &'static str,
    /// The names of workloads, each with what follows "How long does it take to". `{all}` stands for
    /// how many refs there are, `{tenth}` for a tenth of them.
    questions: &'static [(&'static str, &'static str)],
}

/// Every topic, in the order of the page.
pub(crate) const TOPICS: &[Topic] = &[
    Topic {
        title: "Creating refs",
        questions: &[
            ("create", "create {all} refs in an empty repository"),
            ("create-more", "create {tenth} refs beside {all}"),
            (
                "create-tags",
                "create {tenth} annotated tags beside {all} refs",
            ),
            (
                "create-again",
                "create {all} refs again, after the same program has deleted them",
            ),
            (
                "create-after-git",
                "create {all} refs again, after Git has deleted them",
            ),
        ],
    },
    Topic {
        title: "Changing and deleting refs",
        questions: &[
            ("update", "change {all} refs"),
            ("update-git", "change {all} refs that Git wrote"),
            ("delete", "delete {all} refs"),
            ("delete-git", "delete {all} refs that Git wrote"),
            ("delete-one", "delete one ref of {all}"),
        ],
    },
    Topic {
        title: "One ref at a time",
        questions: &[
            (
                "single-small",
                "create one ref beside ten others (50 processes in a row)",
            ),
            (
                "single-large",
                "create one ref beside {all} (50 processes in a row)",
            ),
            (
                "transactions",
                "commit {tenth} transactions of one ref each, in one process",
            ),
            (
                "writers",
                "create 200 refs by 8 writers at once, each ref in a process, while another one packs",
            ),
        ],
    },
    Topic {
        title: "The same with reflogs",
        questions: &[
            ("create-logged", "create {all} refs, with reflogs"),
            (
                "more-logged",
                "create {tenth} refs beside {all}, with reflogs",
            ),
            ("update-logged", "change {all} refs, with reflogs"),
            (
                "again-logged",
                "create {all} refs again, after deleting them, with reflogs",
            ),
            (
                "transactions-logged",
                "commit {tenth} transactions of one ref each, with reflogs",
            ),
        ],
    },
    Topic {
        title: "Listing refs and looking them up",
        questions: &[
            ("list", "list {all} refs"),
            ("list-git", "list {all} refs that Git wrote"),
            (
                "list-after-git",
                "list refs after Git has deleted all {all}",
            ),
            ("list-names", "list only the names of {all} refs"),
            (
                "list-exclude",
                "list {all} refs without two folders of them",
            ),
            (
                "list-ignore-case",
                "list {all} refs sorted without regard to case",
            ),
            (
                "list-prefix",
                "list one folder of {all} refs (50 processes in a row)",
            ),
            (
                "list-first",
                "list the first of {all} refs (50 processes in a row)",
            ),
            (
                "lookup",
                "look up one name among {all} (50 processes in a row)",
            ),
            ("by-object", "find the refs of one object among {all}"),
            (
                "by-no-object",
                "find that none of {all} refs names an object",
            ),
        ],
    },
    Topic {
        title: "Where each ref names an object of its own",
        questions: &[
            ("own-list", "list {all} refs, with the kind of each object"),
            (
                "own-exist",
                "list {all} refs, after a look whether the object of each is there (show-ref)",
            ),
            (
                "own-tags",
                "list {all} refs, and what the tags among them name (show-ref -d)",
            ),
            ("own-short", "list {all} refs with abbreviated ids"),
            (
                "own-dates",
                "list {all} refs by date, with date and subject",
            ),
            (
                "own-sizes",
                "list {all} refs with the sizes of their objects, unpacked and packed",
            ),
            (
                "own-merged",
                "list those of {all} refs that a commit in the middle has in its history",
            ),
        ],
    },
    Topic {
        title: "Keeping the store in order",
        questions: &[
            ("pack", "pack {tenth} new refs, or compact them"),
            (
                "pack-git",
                "pack {tenth} new refs that Git wrote, or compact them",
            ),
            ("migrate", "move {all} refs to the other format"),
        ],
    },
];

/// The topic of workloads that no other one has.
const OTHERS: Topic = Topic {
    title: "Other work",
    questions: &[],
};

impl Topic {
    /// Returns where a workload stands in the topic.
    pub(crate) fn place(&self, workload: &str) -> Option<usize> {
        let mut names = self.questions.iter().map(|question| question.0);
        names.position(|name| name == workload)
    }
}

/// Returns the topic of a workload, and the place of both: rows are sorted by it.
pub(crate) fn topic(workload: &str) -> (usize, usize, &'static Topic) {
    let mut topics = TOPICS.iter().enumerate();
    let found = topics.find_map(|(at, topic)| Some((at, topic.place(workload)?, topic)));
    found.unwrap_or((TOPICS.len(), 0, &OTHERS))
}

/// Returns what follows "How long does it take to".
pub(crate) fn question(workload: &str, refs: u64) -> String {
    let (_, place, topic) = topic(workload);
    let text = match topic.questions.get(place) {
        Some((_, text)) => text,
        None => WORKLOADS
            .iter()
            .find(|known| known.name == workload)
            .map_or(workload, |known| known.about),
    };
    text.replace("{all}", &grouped(refs))
        .replace("{tenth}", &grouped(refs / 10))
}

/// Returns the same where the number of refs is an axis.
pub(crate) fn question_at_any_size(workload: &str) -> String {
    let (_, place, topic) = topic(workload);
    let text = topic.questions.get(place).map_or(workload, |entry| entry.1);
    text.replace("{all}", "n").replace("{tenth}", "n/10")
}

/// Returns a number with a comma between groups of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_asked_for_in_words() {
        let missing: Vec<&str> = WORKLOADS
            .iter()
            .map(|workload| workload.name)
            .filter(|name| topic(name).0 == TOPICS.len())
            .collect();
        assert_eq!(missing, Vec::<&str>::new());
    }

    #[test]
    fn numbers_are_grouped_and_put_into_questions() {
        assert_eq!(grouped(10), "10");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(
            question("create-more", 100_000),
            "create 10,000 refs beside 100,000"
        );
        assert_eq!(question("unheard-of", 10), "unheard-of");
    }
}
