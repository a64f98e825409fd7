//! Pushes that several processes of one machine take at once, committed together.
//!
//! Whoever finds nobody leading leads. All others leave what they want in a folder of the repository, and wait
//! until they are answered, or until nobody leads any more: then one of them does, and commits what all of them
//! left.
//!
//! Invariants:
//! 1. Who leads has an advisory lock, which ends with its process. So has everybody who waits, on what it left:
//!    what is left by the dead is never committed.
//! 2. Before a head is sent that holds what others want, it is written down which one that is, and what becomes
//!    of each of them if it is there. Should the leader die, the next one reads from the store whether it is,
//!    makes sure that it cannot come any more if it is not, and answers before it does anything else.
//! 3. Nobody is answered before the head is there.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use refdb::internals::group_to_try;
use refdb::layout::Layout;
use refdb::objects::Objects;
use refdb::shared::head::RECENT_MAX;
use refdb::shared::{Freshness, Register, Settings, Swapped};
use refdb::system::{FileKind, Guard, GuardedFile, System};
use refdb::{Error, ErrorKind, Options, Result, Store};
use refdb_git::Repository;

use super::claim::{Claim, Claims};
use super::push::{Fate, Pending, Push, commit_push};
use super::spool::{Answer, decode_answer, decode_push, encode_answer, encode_push};

/// The folder, below that of the repository.
const FOLDER: &str = "refdb-committer";
/// So many are committed together.
const MEMBERS_MAX: usize = 256;
/// What is left for others is at most so long.
const REQUEST_MAX: usize = 1 << 20;
/// No claim is longer, which says of each member and each of its refs what became of it.
const CLAIM_MAX: usize = 256 << 20;
/// How long somebody who leads is waited for.
const LIMIT: Duration = Duration::from_secs(60);
/// How long it is tried while other machines are faster.
const OVERTAKEN_MAX: Duration = Duration::from_secs(30);
/// The longest pause between two looks.
const PAUSE_MAX: Duration = Duration::from_millis(10);

/// Commits pushes, together with those of other processes of this machine.
pub struct Committer {
    system: Arc<dyn System>,
    dir: PathBuf,
    register: Arc<Register>,
    store: Store,
    claims: Arc<Claims>,
}

/// The right to lead.
struct Lead(
    #[expect(dead_code, reason = "taken")] Option<Guard>,
    #[expect(dead_code, reason = "taken")] Option<Box<dyn GuardedFile>>,
);

/// What was left for whoever leads.
struct Left {
    name: String,
    #[expect(dead_code, reason = "as long as it is open, its owner lives")]
    file: Box<dyn GuardedFile>,
}

/// One of those who are committed together.
struct Member {
    /// What it left; `None` for the leader's own.
    name: Option<String>,
    push: Push,
    fates: Option<Answer>,
}

impl Committer {
    /// Prepares to commit to the store that a repository uses; `None` if it uses none.
    ///
    /// # Errors
    /// As for [`Store::open_shared_beside`].
    pub fn open(repository: &Repository) -> Result<Option<Committer>> {
        let Some(register) = repository.register() else {
            return Ok(None);
        };
        let objects = Arc::clone(repository.odb()) as Arc<_>;
        let options = repository.store().options().clone();
        let system = repository.system();
        Committer::beside(repository.common_dir(), register, system, objects, options).map(Some)
    }

    fn beside(
        common: &Path,
        register: &Arc<Register>,
        system: &Arc<dyn System>,
        objects: Arc<dyn Objects>,
        options: Options,
    ) -> Result<Committer> {
        let dir = common.join(FOLDER);
        let claims = Arc::new(Claims::new(Arc::clone(register), Arc::clone(system), &dir));
        let place = Arc::clone(&claims) as Arc<_>;
        let register = Register::open(place, Arc::clone(system), Settings::default())?;
        let register = Arc::new(register);
        let layout = Layout::main(common);
        let store = Store::open_shared_beside(&layout, Arc::clone(&register), objects, options)?;
        Ok(Committer {
            system: Arc::clone(system),
            dir,
            register,
            store,
            claims,
        })
    }

    /// Commits a push; returns what became of each of its refs. `afterwards` is called before anybody is
    /// answered, by whoever commits.
    pub fn commit(&self, push: Push, afterwards: &mut dyn FnMut()) -> Vec<Fate> {
        let alone = |push: &Push, afterwards: &mut dyn FnMut()| {
            let fates = commit_push(&self.store, push);
            afterwards();
            fates
        };
        let Ok(lead) = self.begin() else {
            return alone(&push, afterwards);
        };
        if let Some(lead) = lead {
            return self.lead(&lead, None, push, afterwards);
        }
        let Ok(left) = self.leave(&push) else {
            return alone(&push, afterwards);
        };
        let begun = self.system.elapsed();
        let mut pause = Duration::from_millis(1);
        loop {
            match self.answer(&left) {
                Some(Answer::Fates(fates)) => return fates,
                Some(Answer::Alone) => return alone(&push, afterwards),
                None => {}
            }
            if let Ok(Some(lead)) = self.try_lead() {
                return self.lead(&lead, Some(left), push, afterwards);
            }
            if self.system.elapsed().saturating_sub(begun) > LIMIT {
                self.take_back(&left);
                let error = Error::new(ErrorKind::Unknown, "whoever commits here does not answer");
                return Pending::all_failed(&push, &error);
            }
            let spread = self.system.random() % 1000;
            self.system.sleep(pause + Duration::from_micros(spread));
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Leads, if nobody does.
    fn begin(&self) -> Result<Option<Lead>> {
        match self.system.create_dir(&self.dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::io("cannot create", &self.dir, error));
            }
            _ => {}
        }
        // A link there would lead what is written, and removed, somewhere else.
        match self.system.lstat(&self.dir) {
            Ok(stat) if stat.kind == FileKind::Directory => self.try_lead(),
            Ok(_) => {
                let what = format!("'{}' is no folder", self.dir.display());
                Err(Error::new(ErrorKind::Corrupt, what))
            }
            Err(error) => Err(Error::io("cannot look at", &self.dir, error)),
        }
    }

    fn try_lead(&self) -> Result<Option<Lead>> {
        let path = self.path("leader");
        let failed = |error| Error::io("cannot lock", &path, error);
        if let Some(guard) = self.system.guard_file(&path).map_err(failed)? {
            return Ok(Some(Lead(Some(guard), None)));
        }
        match self.system.create_guarded(&path, 0o666) {
            Ok(file) => Ok(Some(Lead(None, Some(file)))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Who may not open it can never lead, and does not wait. What is no file of its own nobody leads by.
                let stat = self.system.lstat(&path).map_err(failed)?;
                if stat.kind != FileKind::File {
                    return Err(failed(io::Error::other("it is no file")));
                }
                let read = self.system.read_at_most(&path, 1);
                read.map(|_| None).map_err(failed)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Leaves a push for whoever leads.
    fn leave(&self, push: &Push) -> Result<Left> {
        let identity = self.store.options().committer.get()?;
        let now = (self.system.now().as_secs(), identity.zone);
        let (time, zone) = identity.date.unwrap_or(now);
        let who = refdb::Signature {
            name: identity.name.clone(),
            email: identity.email.clone(),
            time,
            zone,
        };
        let content = encode_push(push, &who);
        if content.len() > REQUEST_MAX {
            return Err(Error::new(ErrorKind::Misuse, "it is too long to be left"));
        }
        let name = format!("{:016x}", self.system.random());
        let path = self.path(&format!("{name}.request"));
        let written = (|| {
            let mut file = self.system.create_guarded(&path, 0o666)?;
            file.write_all(&content)?;
            Ok(file)
        })();
        match written {
            Ok(file) => Ok(Left { name, file }),
            Err(error) => {
                let _ = self.system.remove_file(&path);
                Err(Error::io("cannot write", &path, error))
            }
        }
    }

    /// Returns what became of what was left, and takes it away, if that is said.
    fn answer(&self, left: &Left) -> Option<Answer> {
        let path = self.path(&format!("{}.answer", left.name));
        let content = self.system.read_at_most(&path, REQUEST_MAX * 4).ok()?;
        let answer = decode_answer(&content)?;
        self.take_back(left);
        let _ = self.system.remove_file(&path);
        Some(answer)
    }

    fn take_back(&self, left: &Left) {
        let path = self.path(&format!("{}.request", left.name));
        let _ = self.system.remove_file(&path);
    }

    /// Commits what is wanted here and what others left.
    fn lead(
        &self,
        _lead: &Lead,
        left: Option<Left>,
        push: Push,
        afterwards: &mut dyn FnMut(),
    ) -> Vec<Fate> {
        if let Err(error) = self.settle(afterwards) {
            let is_open = left.as_ref().is_some_and(|left| self.is_claimed(left));
            if let Some(left) = &left {
                self.take_back(left);
            }
            let error = match is_open {
                true => Error::new(ErrorKind::Unknown, error.to_string()),
                false => error,
            };
            return Pending::all_failed(&push, &error);
        }
        if let Some(left) = &left {
            match self.answer(left) {
                Some(Answer::Fates(fates)) => return fates,
                Some(Answer::Alone) | None => self.take_back(left),
            }
        }
        let mut members = vec![Member {
            name: None,
            push,
            fates: None,
        }];
        // Those who are not found lead in their turn, or are found by the next one.
        let _ = self.collect(&mut members);
        if members.len() > 1 {
            self.commit_together(&mut members);
        }
        let own = members.swap_remove(0);
        let fates = match own.fates {
            Some(Answer::Fates(fates)) => fates,
            _ => commit_push(&self.store, &own.push),
        };
        afterwards();
        let mut told = true;
        for member in &members {
            let answer = member.fates.as_ref().unwrap_or(&Answer::Alone);
            let name = member.name.as_deref().unwrap_or_default();
            told &= self.tell(name, answer).is_ok();
        }
        // Whoever could not be answered is by the next one.
        if told {
            let _ = self.system.remove_file(&self.claims.path());
        }
        fates
    }

    /// Adds what others left, as many as are committed together, and takes away what the dead did.
    fn collect(&self, members: &mut Vec<Member>) -> Result<()> {
        let entries = self.system.read_dir(&self.dir);
        let entries = entries.map_err(|error| Error::io("cannot read", &self.dir, error))?;
        let names = entries
            .iter()
            .filter_map(|entry| std::str::from_utf8(&entry.name).ok());
        let names: Vec<&str> = names.collect();
        for file in &names {
            let is_there = |other: &str| names.contains(&other);
            let path = self.path(file);
            match file.split_once('.') {
                Some((name, "request")) => {
                    if let Ok(Some(_dead)) = self.system.guard_file(&path) {
                        let _ = self.system.remove_file(&path);
                        continue;
                    }
                    let is_answered = is_there(&format!("{name}.answer"));
                    let content = self.system.read_at_most(&path, REQUEST_MAX + 1);
                    // One that is not whole is being written.
                    let push = content.ok().and_then(|it| decode_push(&it));
                    if let (Some(push), false) = (push, is_answered || members.len() >= MEMBERS_MAX)
                    {
                        members.push(Member {
                            name: Some(name.to_owned()),
                            push,
                            fates: None,
                        });
                    }
                }
                // Nobody waits for it any more, or its writer has died.
                Some((name, "answer")) if !is_there(&format!("{name}.request")) => {
                    let _ = self.system.remove_file(&path);
                }
                Some((_, "new")) => {
                    let _ = self.system.remove_file(&path);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Commits all members that can be committed together. Those that cannot have no fates afterwards: they
    /// commit alone.
    fn commit_together(&self, members: &mut [Member]) {
        let begun = self.system.elapsed();
        let mut most = 1;
        loop {
            match self.try_together(members) {
                Err(error) if error.kind() == ErrorKind::Overtaken => {
                    if self.system.elapsed().saturating_sub(begun) > OVERTAKEN_MAX {
                        return;
                    }
                    let micros = self.system.random() % (most * 1000);
                    self.system.sleep(Duration::from_micros(micros));
                    most = (most * 2).min(64);
                }
                _ => return,
            }
        }
    }

    fn try_together(&self, members: &mut [Member]) -> Result<()> {
        let Some(mut group) = group_to_try(&self.store)? else {
            return Ok(());
        };
        let mut joined: Vec<(usize, Pending, Vec<Fate>)> = Vec::new();
        for (at, member) in members.iter().enumerate() {
            let (pending, transaction) = Pending::begin(&self.store, &member.push);
            let added = match &transaction {
                Some(transaction) => group.add(transaction),
                None => Ok(Vec::new()),
            };
            if let Ok(rejections) = added {
                let fates = pending.fates_with(&rejections);
                joined.push((at, pending, fates));
            }
        }
        let prepared = group.close()?;
        let others = joined.iter().filter_map(|(at, _, fates)| {
            let name = members.get(*at)?.name.clone()?;
            Some((name, fates.clone()))
        });
        self.claims.set(others.collect());
        let done = prepared.commit();
        self.claims.set(Vec::new());
        if let Err(error) = &done
            && error.kind() == ErrorKind::Overtaken
        {
            return Err(error.clone());
        }
        for (at, pending, fates) in joined {
            let fates = match &done {
                Ok(_) => fates,
                Err(error) => pending.end(Err(error.clone())),
            };
            if let Some(member) = members.get_mut(at) {
                member.fates = Some(Answer::Fates(fates));
            }
        }
        Ok(())
    }

    /// Answers those whom a leader that died had not answered, if there are any.
    fn settle(&self, afterwards: &mut dyn FnMut()) -> Result<()> {
        let path = self.claims.path();
        let content = match self.system.read_at_most(&path, CLAIM_MAX) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // What cannot be read is as good as damaged.
            Err(_) => Vec::new(),
        };
        match Claim::decode(&content) {
            Some(claim) => self.settle_claim(claim, afterwards)?,
            // A loss of power leaves such a thing, and nobody who waits.
            None => {
                let error = "what the one who committed had written down is damaged";
                self.tell_all(&Error::new(ErrorKind::Unknown, error))?;
            }
        }
        let removed = self.system.remove_file(&path);
        removed.map_err(|error| Error::io("cannot remove", &path, error))
    }

    fn settle_claim(&self, claim: Claim, afterwards: &mut dyn FnMut()) -> Result<()> {
        match self.is_there(&claim)? {
            Some(true) => {
                afterwards();
                for (name, fates) in claim.members {
                    self.tell(&name, &Answer::Fates(fates))?;
                }
            }
            // They are committed now.
            Some(false) => {}
            None => {
                let error = "so much was committed since that it cannot be told";
                let error = Error::new(ErrorKind::Unknown, error);
                for (name, fates) in claim.members {
                    let fates = fates.iter().map(|_| Fate::failed(&error)).collect();
                    self.tell(&name, &Answer::Fates(fates))?;
                }
            }
        }
        Ok(())
    }

    /// Tells all who wait that what they want has failed.
    fn tell_all(&self, error: &Error) -> Result<()> {
        loop {
            let mut members = Vec::new();
            self.collect(&mut members)?;
            if members.is_empty() {
                return Ok(());
            }
            for member in members {
                let fates = Pending::all_failed(&member.push, error);
                let name = member.name.as_deref().unwrap_or_default();
                self.tell(name, &Answer::Fates(fates))?;
            }
        }
    }

    /// Returns whether a head took its place, which it cannot do any more if it has not; `None` if that cannot
    /// be told.
    fn is_there(&self, claim: &Claim) -> Result<Option<bool>> {
        loop {
            let known = self.register.current(Freshness::Fresh)?;
            if known.head.uuid != claim.uuid {
                return Ok(Some(false));
            }
            if let Some(after) = known.head.generation.checked_sub(claim.generation) {
                let after = usize::try_from(after).unwrap_or(RECENT_MAX);
                let id = known.head.recent.get(after);
                return Ok(id.map(|id| *id == claim.id));
            }
            // It may be on its way: an empty commit takes the place that it could have.
            match self.register.swap(&known, known.head.clone())? {
                Swapped::Done | Swapped::Moved => {}
            }
        }
    }

    /// Returns whether what was left is among what a leader that died had begun with.
    fn is_claimed(&self, left: &Left) -> bool {
        let content = self.system.read_at_most(&self.claims.path(), CLAIM_MAX);
        let content = content.unwrap_or_default();
        let claim = Claim::decode(&content);
        claim.is_none_or(|claim| claim.members.iter().any(|(name, _)| *name == left.name))
    }

    /// Answers somebody, unless nobody waits any more.
    fn tell(&self, name: &str, answer: &Answer) -> Result<()> {
        let request = self.path(&format!("{name}.request"));
        let found = self.system.find(&request);
        if found
            .map_err(|error| Error::io("cannot look at", &request, error))?
            .is_none()
        {
            return Ok(());
        }
        let path = self.path(&format!("{name}.answer"));
        let written = write_new(self.system.as_ref(), &path, &encode_answer(answer));
        written.map_err(|error| Error::io("cannot write", &path, error))
    }
}

/// Gives a file a content in one step, which need not outlive a loss of power: nor does anybody who waits for it.
pub(super) fn write_new(system: &dyn System, path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    // A leader that died may have left it.
    match system.remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = system.create_new(&new, 0o666)?;
    file.write_all(content)?;
    drop(file);
    system.rename(&new, path)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use refdb::objects::NoObjects;
    use refdb::shared::MemoryShared;
    use refdb::system::OsSystem;
    use refdb::{ObjectFormat, ObjectId, RefName, RefNameBuf};

    use super::super::push::Wanted;
    use super::*;

    struct Scene {
        temp: tempfile::TempDir,
        place: Arc<MemoryShared>,
    }

    impl Scene {
        fn new() -> Scene {
            let place = Arc::new(MemoryShared::new());
            Register::init(place.as_ref(), &OsSystem::new(), ObjectFormat::Sha1, 1).unwrap();
            let temp = tempfile::tempdir().unwrap();
            std::fs::create_dir(temp.path().join(FOLDER)).unwrap();
            Scene { temp, place }
        }

        /// What a process of this machine has.
        fn process(&self) -> Committer {
            let system: Arc<dyn System> = Arc::new(OsSystem::new());
            let place = Arc::clone(&self.place) as Arc<_>;
            let register = Register::open(place, Arc::clone(&system), Settings::default());
            let register = Arc::new(register.unwrap());
            let options = Options::new(ObjectFormat::Sha1);
            let objects = Arc::new(NoObjects);
            Committer::beside(self.temp.path(), &register, &system, objects, options).unwrap()
        }

        fn generation(&self) -> u64 {
            let known = self.process().register.current(Freshness::Fresh);
            known.unwrap().head.generation
        }

        fn value(&self, name: &str) -> Option<ObjectId> {
            let store = self.process().store;
            let found = store.resolve(RefName::new(name).unwrap()).unwrap();
            found.map(|found| found.oid)
        }

        fn requests(&self) -> usize {
            let entries = std::fs::read_dir(self.temp.path().join(FOLDER)).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.filter(|name| name.ends_with(".request")).count()
        }

        /// What is left when nobody waits.
        fn is_tidy(&self) -> bool {
            std::fs::read_dir(self.temp.path().join(FOLDER))
                .unwrap()
                .count()
                <= 1
        }
    }

    fn oid(digit: u8) -> ObjectId {
        ObjectId::from_hex(&[digit; 40]).unwrap()
    }

    fn push(name: &str, digit: u8) -> Push {
        let wanted = Wanted {
            name: RefNameBuf::new(name).unwrap(),
            old: oid(b'0'),
            new: oid(digit),
        };
        Push {
            refs: vec![wanted],
            ..Push::default()
        }
    }

    #[test]
    fn a_link_in_the_place_of_the_folder_is_not_followed() {
        let scene = Scene::new();
        let elsewhere = tempfile::tempdir().unwrap();
        // A leader would take it for one that another has left.
        std::fs::write(elsewhere.path().join("claim.new"), "").unwrap();
        let folder = scene.temp.path().join(FOLDER);
        std::fs::remove_dir(&folder).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), &folder).unwrap();
        let done = scene
            .process()
            .commit(push("refs/heads/a", b'1'), &mut || ());
        assert_eq!(done, [Fate::Done]);
        let left = std::fs::read_dir(elsewhere.path()).unwrap();
        let names: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["claim.new"]);
    }

    /// Another user of a shared repository, or a copy that made links: nobody leads by that, and nobody waits.
    #[test]
    fn what_is_no_file_leads_nobody() {
        let scene = Scene::new();
        let folder = scene.temp.path().join(FOLDER);
        let file = scene.temp.path().join("file");
        std::fs::write(&file, "").unwrap();
        let leader = folder.join("leader");
        std::os::unix::fs::symlink(&file, &leader).unwrap();
        let begun = std::time::Instant::now();
        let done = scene
            .process()
            .commit(push("refs/heads/a", b'1'), &mut || ());
        assert_eq!(done, [Fate::Done]);
        assert!(begun.elapsed() < LIMIT / 4);
        assert!(leader.is_symlink() && file.exists());
    }

    #[test]
    fn all_that_wait_are_one_commit() {
        const WAITING: usize = 64;
        let scene = Scene::new();
        let first = scene.process();
        let lead = first.try_lead().unwrap().unwrap();
        let before = scene.generation();
        let done: Vec<Vec<Fate>> = thread::scope(|scope| {
            let each = |at: usize| {
                // The last two want the same ref.
                let name = format!("refs/heads/{}", at.min(WAITING - 2));
                scene.process().commit(push(&name, b'1'), &mut || ())
            };
            let threads: Vec<_> = (0..WAITING)
                .map(|at| scope.spawn(move || each(at)))
                .collect();
            while scene.requests() < WAITING {
                thread::sleep(Duration::from_millis(1));
            }
            drop(lead);
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let well = done.iter().filter(|fates| **fates == [Fate::Done]).count();
        assert_eq!(well, WAITING - 1);
        let reason = |fates: &Vec<Fate>| match fates.as_slice() {
            [Fate::Refused { reason, .. }] => Some(reason.clone()),
            _ => None,
        };
        let refused: Vec<String> = done.iter().filter_map(reason).collect();
        assert_eq!(refused, ["reference already exists"]);
        let written = scene.generation() - before;
        assert!(written * 10 <= WAITING as u64, "{written}");
        for at in 0..WAITING - 1 {
            assert_eq!(scene.value(&format!("refs/heads/{at}")), Some(oid(b'1')));
        }
        assert!(scene.is_tidy());
    }

    /// A leader sends a head for somebody who waits, and answers nobody.
    #[test]
    fn what_a_dead_leader_committed_is_told_by_the_next() {
        let scene = Scene::new();
        let (waits, dies, comes) = (scene.process(), scene.process(), scene.process());
        let left = waits.leave(&push("refs/heads/waits", b'1')).unwrap();
        let mut members = Vec::new();
        dies.collect(&mut members).unwrap();
        assert_eq!(members.len(), 1);
        dies.try_together(&mut members).unwrap();
        assert!(members[0].fates.is_some());
        assert_eq!(waits.answer(&left), None);
        // Others are there by then, and the ref is another.
        let mut moves = push("refs/heads/waits", b'2');
        moves.refs[0].old = oid(b'1');
        assert_eq!(commit_push(&scene.process().store, &moves), [Fate::Done]);
        let before = scene.generation();
        let mut calls = 0;
        let fates = comes.commit(push("refs/heads/comes", b'3'), &mut || calls += 1);
        assert_eq!(fates, [Fate::Done]);
        assert_eq!(waits.answer(&left), Some(Answer::Fates(vec![Fate::Done])));
        assert_eq!((scene.generation() - before, calls), (1, 2));
        assert_eq!(scene.value("refs/heads/waits"), Some(oid(b'2')));
        assert!(scene.is_tidy());
    }

    /// A leader wrote down what it was about to send, and did not, or its request is late.
    #[test]
    fn what_a_dead_leader_did_not_commit_is_committed_by_the_next_once() {
        let scene = Scene::new();
        let (waits, comes) = (scene.process(), scene.process());
        let left = waits.leave(&push("refs/heads/waits", b'1')).unwrap();
        let known = comes.register.current(Freshness::Fresh).unwrap();
        let (uuid, generation) = (known.head.uuid, known.head.generation + 1);
        let claim = Claim {
            uuid,
            generation,
            id: 42,
            members: vec![(left.name.clone(), vec![Fate::Done])],
        };
        std::fs::write(waits.claims.path(), claim.encode()).unwrap();
        let fates = comes.commit(push("refs/heads/comes", b'3'), &mut || ());
        assert_eq!(fates, [Fate::Done]);
        assert_eq!(waits.answer(&left), Some(Answer::Fates(vec![Fate::Done])));
        // The place that it could have had is taken, and one commit is for both.
        assert_eq!(scene.generation(), generation + 1);
        assert_eq!(scene.value("refs/heads/waits"), Some(oid(b'1')));
        assert!(scene.is_tidy());
    }

    #[test]
    fn a_claim_that_is_damaged_keeps_nobody_out() {
        let empty = |path: &Path| std::fs::write(path, "").unwrap();
        let hole = |path: &Path| {
            let file = std::fs::File::create(path).unwrap();
            file.set_len(20 << 30).unwrap();
        };
        let pipe = |path: &Path| {
            let made = std::process::Command::new("mkfifo").arg(path).status();
            assert!(made.unwrap().success());
        };
        for damage in [&empty as &dyn Fn(&Path), &hole, &pipe] {
            let scene = Scene::new();
            let waits = scene.process();
            let left = waits.leave(&push("refs/heads/waits", b'1')).unwrap();
            damage(&waits.claims.path());
            let fates = scene
                .process()
                .commit(push("refs/heads/comes", b'3'), &mut || ());
            assert_eq!(fates, [Fate::Done]);
            let Some(Answer::Fates(fates)) = waits.answer(&left) else {
                panic!("nobody answers");
            };
            assert!(
                matches!(fates.as_slice(), [Fate::Refused { reason, .. }] if reason.contains("not known"))
            );
            assert_eq!(scene.value("refs/heads/waits"), None);
            assert!(scene.is_tidy());
        }
    }

    /// The claim names some of them, and which is not known: nobody is committed by the next one before all are told.
    #[test]
    fn a_claim_that_is_damaged_is_told_to_all_that_wait() {
        const WAITING: usize = MEMBERS_MAX + 40;
        let scene = Scene::new();
        let waits = scene.process();
        let leave = |at| {
            waits
                .leave(&push(&format!("refs/heads/{at}"), b'1'))
                .unwrap()
        };
        let left: Vec<Left> = (0..WAITING).map(leave).collect();
        std::fs::write(waits.claims.path(), "").unwrap();
        let before = scene.generation();
        let fates = scene
            .process()
            .commit(push("refs/heads/comes", b'3'), &mut || ());
        assert_eq!(fates, [Fate::Done]);
        assert_eq!(scene.generation(), before + 1);
        for left in &left {
            let Some(Answer::Fates(fates)) = waits.answer(left) else {
                panic!("nobody answers");
            };
            assert!(
                matches!(fates.as_slice(), [Fate::Refused { reason, .. }] if reason.contains("not known"))
            );
        }
        for at in 0..WAITING {
            assert_eq!(scene.value(&format!("refs/heads/{at}")), None);
        }
        assert!(scene.is_tidy());
    }

    /// Whoever cannot look does not know that nobody waits, and the claim stays.
    #[test]
    fn a_failure_to_look_is_not_taken_for_nobody() {
        let scene = Scene::new();
        let process = scene.process();
        assert!(process.tell("0", &Answer::Alone).is_ok());
        assert!(process.tell(&"x".repeat(5000), &Answer::Alone).is_err());
        let error = Error::new(ErrorKind::Unknown, "damaged");
        assert!(process.tell_all(&error).is_ok());
        let folder = scene.temp.path().join(FOLDER);
        std::fs::remove_dir(&folder).unwrap();
        assert!(process.tell_all(&error).is_err());
    }

    #[test]
    fn what_the_dead_left_is_not_committed() {
        let scene = Scene::new();
        let dead = scene
            .process()
            .leave(&push("refs/heads/dead", b'1'))
            .unwrap();
        drop(dead);
        let fates = scene
            .process()
            .commit(push("refs/heads/a", b'2'), &mut || ());
        assert_eq!(fates, [Fate::Done]);
        assert_eq!(scene.value("refs/heads/dead"), None);
        assert!(scene.is_tidy());
    }
}
