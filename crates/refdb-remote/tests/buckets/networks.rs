//! Machines with a network of their own each, and what becomes of refs when they are cut off, killed and stopped.
//!
//! They are namespaces of Linux, which only root may make; elsewhere all processes use the network of this
//! machine, which is told. Before the bucket stands the liar. `scripts/object-stores hosts` runs it;
//! `REFDB_HOSTS_SECONDS` says for how long, `REFDB_HOSTS_LIES` of how many in a hundred it lies about.
#![expect(clippy::print_stderr, reason = "how much was tried")]

use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use refdb_testkit::trust::{Tally, budget};

use crate::hosts::{Found, Plan, run};
use crate::liar::Place;

const HOSTS: usize = 4;
const PROCESSES: usize = 16;

/// How often a machine is cut off, and for how long.
const CUT_EVERY: Duration = Duration::from_secs(5);
const CUT_FOR: Duration = Duration::from_millis(1500);

/// A bridge, and a namespace for each machine.
struct Network {
    id: u32,
    cut: Option<usize>,
}

fn ip(args: &str) -> bool {
    let status = Command::new("ip")
        .args(args.split(' '))
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

impl Network {
    fn new() -> Option<Network> {
        let id = std::process::id() % 10_000;
        let network = Network { id, cut: None };
        let made = ip(&format!("link add rdb{id} type bridge"))
            && ip(&format!("addr add {}/24 dev rdb{id}", network.address(0)))
            && ip(&format!("link set rdb{id} up"))
            && (0..HOSTS).all(|host| network.add(host));
        made.then_some(network)
    }

    fn address(&self, at: usize) -> IpAddr {
        let third = u8::try_from(self.id % 200).expect("it is small");
        [10, 99, third, u8::try_from(at + 1).expect("it is small")].into()
    }

    fn namespace(&self, host: usize) -> String {
        format!("rdh{}x{host}", self.id)
    }

    fn link(&self, host: usize) -> String {
        format!("rdl{}x{host}", self.id)
    }

    fn add(&self, host: usize) -> bool {
        let (space, link, id) = (self.namespace(host), self.link(host), self.id);
        ip(&format!("netns add {space}"))
            && ip(&format!(
                "link add {link} type veth peer name eth0 netns {space}"
            ))
            && ip(&format!("link set {link} master rdb{id} up"))
            && ip(&format!(
                "-n {space} addr add {}/24 dev eth0",
                self.address(host + 1)
            ))
            && ip(&format!("-n {space} link set eth0 up"))
            && ip(&format!("-n {space} link set lo up"))
    }

    /// Cuts a machine off, another one every time, and joins it again.
    fn disturb(&mut self, since: Duration) {
        let turns = since.as_millis() / CUT_EVERY.as_millis();
        let is_cut = since != Duration::MAX
            && since.as_millis() % CUT_EVERY.as_millis() < CUT_FOR.as_millis();
        let wanted = is_cut.then(|| usize::try_from(turns % HOSTS as u128).expect("it is small"));
        if wanted == self.cut {
            return;
        }
        if let Some(host) = self.cut {
            assert!(ip(&format!("link set {} up", self.link(host))));
        }
        if let Some(host) = wanted {
            assert!(ip(&format!("link set {} down", self.link(host))));
        }
        self.cut = wanted;
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in 0..HOSTS {
            ip(&format!("netns del {}", self.namespace(host)));
        }
        ip(&format!("link del rdb{}", self.id));
    }
}

#[test]
#[ignore = "it takes minutes: scripts/object-stores hosts"]
fn machines_that_are_cut_off_killed_and_stopped_lose_nothing() {
    let seconds = budget("REFDB_HOSTS_SECONDS", 120);
    let lies = budget("REFDB_HOSTS_LIES", 25);
    let mut tally = Tally::begin("pushes of machines with networks of their own", 0);
    let mut network = Network::new();
    let address = match &network {
        Some(network) => network.address(0),
        None => {
            eprintln!(
                "there are no namespaces here (not root?): all use one network, and none is cut off"
            );
            [127, 0, 0, 1].into()
        }
    };
    let place = Place::at(address, lies);
    let spaces: Option<Vec<String>> = network
        .as_ref()
        .map(|it| (0..HOSTS).map(|host| it.namespace(host)).collect());
    let prefix = |host: usize| match &spaces {
        Some(spaces) => ["ip", "netns", "exec", &spaces[host]]
            .map(str::to_owned)
            .to_vec(),
        None => Vec::new(),
    };
    let found = run(Plan {
        url: place.url("hosts"),
        hosts: HOSTS,
        processes: PROCESSES,
        lasts: Duration::from_secs(seconds),
        planted: "nothing",
        prefix: &prefix,
        beside: &mut |since| {
            if let Some(network) = &mut network {
                network.disturb(since);
            }
        },
    });
    let (puts, gets, told) = place.counts();
    eprintln!("{puts} requests that write, {gets} that read, {told} lies");
    assert_sound(&found);
    tally.add(found.done as u64);
}

fn assert_sound(found: &Found) {
    assert!(found.wrong.is_empty(), "{:#?}\n{}", found.wrong, found.said);
    assert!(found.done > 100 && found.untold > 0, "{found}");
}

#[test]
#[ignore = "scripts/object-stores hosts"]
fn a_bucket_that_breaks_its_conditions_is_noticed() {
    let place = Place::in_memory(crate::server::Conditions::LookTooEarly, 0);
    let found = run(Plan {
        url: place.url("broken"),
        hosts: 2,
        processes: 8,
        lasts: Duration::from_secs(8),
        planted: "nothing",
        prefix: &|_| Vec::new(),
        beside: &mut |_| (),
    });
    assert!(!found.wrong.is_empty(), "{found}");
}
