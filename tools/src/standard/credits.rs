// SPDX-License-Identifier: GPL-2.0

//! Which rules flow control needs: without any one of them, a shortest way to where two ends stand
//! still, talk for ever, or send more than there are Receives for.
//!
//! All orders of events are tried out for small windows. The peers are made of rules; with all
//! rules they do what the module's code does at each step.

mod pair;
mod peer;

use std::collections::HashSet;

use self::{
    pair::{
        Failure,
        Pair,
        Plan,
        Step,
        BAD, //
    },
    peer::{
        Rule,
        Rules, //
    }, //
};
use super::document;
use crate::proto::window;

/// The document that shows the ways.
const DOCUMENT: &str = "credits.rst";

/// The longest way that is looked for.
const LONGEST: usize = 60;

/// The longest way that is shown as a whole.
const SHOWN: usize = 24;

/// What a client and a server have to do.
type Scenario = [Plan; 2];

/// The rules that are left out, the name of the example, and the failures that it shows.
type Case = (&'static [Rule], &'static str, fn(&Failure) -> bool);

/// What is left out. Each of these is enough to fail.
const CASES: [Case; 17] = [
    (
        &[Rule::CountOfReceived],
        "rule 1, stands still",
        Failure::is_wait,
    ),
    (
        &[Rule::CountOfReceived],
        "rule 1, no Receive",
        Failure::is_overrun,
    ),
    (&[Rule::LessThanLimit], "rule 2", Failure::is_any),
    (
        &[Rule::CountOfReceived, Rule::LessThanLimit],
        "rules 1 and 2",
        Failure::is_any,
    ),
    (&[Rule::NeverLess], "rule 3", Failure::is_any),
    (&[Rule::ErrorsCount], "rule 4", Failure::is_any),
    (&[Rule::OneMore], "rule 5", Failure::is_any),
    (&[Rule::GrantBeyond], "rule 6", Failure::is_any),
    (&[Rule::Exchange], "rule 7", Failure::is_any),
    (&[Rule::Half], "rule 8", Failure::is_any),
    (&[Rule::MoreReceives], "rule 9", Failure::is_any),
    (&[Rule::SmallWindows], "rule 10", Failure::is_any),
    (&[Rule::ServerAnswers], "rule 11", Failure::is_any),
    (&[Rule::AllParts], "rule 12", Failure::is_any),
    (&[Rule::HalfInParts], "rule 13", Failure::is_any),
    (
        &[Rule::NoCreditForGrant, Rule::Withheld],
        "rules 14 and 15",
        Failure::is_any,
    ),
    (
        &[Rule::NoCreditForGrant, Rule::Acknowledged],
        "rules 14 and 16",
        Failure::is_any,
    ),
];

/// What is not enough to fail: the client's rule and the two of the server do the same.
const ENOUGH: [&[Rule]; 3] = [
    &[],
    &[Rule::NoCreditForGrant],
    &[Rule::Withheld, Rule::Acknowledged],
];

/// A way to a failure.
struct Found {
    /// The rules of the ends.
    rules: Rules,
    /// Where it begins.
    scenario: Scenario,
    /// What happens.
    steps: Vec<Step>,
    /// What is wrong then.
    failure: Failure,
}

/// The outcome of trying out a scenario.
struct Explored {
    /// The number of states.
    states: usize,
    /// A shortest way to a failure, if there is one.
    found: Option<(Vec<Step>, Failure)>,
}

/// A state, and how it was reached.
struct Reached {
    /// What has happened last, and the state.
    step: Step,
    /// The state before it.
    before: usize,
    /// How many steps there were.
    depth: usize,
}

/// Returns the steps to a state.
fn steps(states: &[Reached], mut at: usize) -> Vec<Step> {
    let mut steps = vec![];
    while at != 0 {
        steps.push(states[at].step.clone());
        at = states[at].before;
    }
    steps.reverse();
    steps
}

/// Tries out everything that can happen in up to `most` steps, the shortest ways first.
fn explore(
    rules: Rules,
    scenario: &Scenario,
    most: usize,
    wanted: fn(&Failure) -> bool,
) -> Explored {
    let start = Pair::new(rules, &scenario[0], &scenario[1]);
    let mut seen = HashSet::from([start.clone()]);
    let mut states = vec![Reached {
        step: (String::new(), start),
        before: 0,
        depth: 0,
    }];
    let mut at = 0;
    while at < states.len() {
        let (pair, depth) = (states[at].step.1.clone(), states[at].depth);
        let next = pair.next(rules);
        if let Some(failure) = pair.failure(rules, next.is_empty()) {
            if wanted(&failure) {
                return Explored {
                    states: states.len(),
                    found: Some((steps(&states, at), failure)),
                };
            }
        } else if depth < most {
            for step in next {
                if seen.insert(step.1.clone()) {
                    states.push(Reached {
                        step,
                        before: at,
                        depth: depth + 1,
                    });
                }
            }
        }
        at += 1;
    }
    Explored {
        states: states.len(),
        found: None,
    }
}

/// Returns a plan without Calls, for a connection of which both ends have told their credits.
fn plain(receives: &[u32], messages: &[u32]) -> Plan {
    Plan {
        receives: receives.to_vec(),
        messages: messages.to_vec(),
        is_told: true,
        ..Plan::default()
    }
}

/// Messages that nobody answers, in windows of all small sizes.
fn of_messages() -> Vec<Scenario> {
    let mut all = vec![];
    for here in 2..=5 {
        for there in 2..=5 {
            let sizes = [here, there];
            for todo in [
                [&[1][..], &[]],
                [&[1], &[1]],
                [&[1, 1], &[]],
                [&[], &[1, 1]],
                [&[1, 1], &[1]],
                [&[BAD], &[1, 1]],
                [&[1, 1], &[BAD]],
                [&[1, 1, 1], &[1, 1]],
            ] {
                all.push([0, 1].map(|at| plain(&[sizes[at]], todo[at])));
            }
            let half = [there, here].map(|receives| window::most_parts(receives - 1));
            let whole = [there, here].map(|receives| receives - 1);
            for parts in [half, whole] {
                all.push([0, 1].map(|at| plain(&[sizes[at]], &[1, parts[at]])));
            }
        }
    }
    all
}

/// Receives that run out and come back, as those of a Shared Receive Queue do.
fn of_changes() -> Vec<Scenario> {
    let mut all = vec![];
    for receives in [[1, 2], [1, 4], [3, 2], [4, 2]] {
        for there in 2..=3 {
            for todo in [[&[1][..], &[]], [&[], &[1]], [&[1, 1], &[1, 1]]] {
                all.push([plain(&receives, todo[0]), plain(&[there], todo[1])]);
                all.push([plain(&[there], todo[0]), plain(&receives, todo[1])]);
            }
        }
    }
    all
}

/// Calls that hold their Receives, both ways, after both ends have told their credits: how many
/// Receives either end has, how many Calls the client makes, and how many the server, at a time.
fn of_calls(client: u32, server: u32, calls: u32, back: (u32, u32)) -> Scenario {
    let plan = |receives, calls, slots| Plan {
        receives: vec![receives],
        calls,
        slots,
        is_told: true,
        ..Plan::default()
    };
    [plan(client, calls, calls), plan(server, back.0, back.1)]
}

/// The same from the counts at which a connection begins. Either end may send first, which is more
/// than a connection has (4.3).
fn from_the_start(mut scenarios: Vec<Scenario>) -> Vec<Scenario> {
    for plan in scenarios.iter_mut().flatten() {
        plan.is_told = false;
    }
    scenarios
}

/// What examples are taken from.
fn scenarios() -> Vec<Scenario> {
    let calls = vec![
        of_calls(3, 2, 2, (1, 1)),
        of_calls(3, 2, 3, (1, 1)),
        of_calls(3, 2, 4, (2, 1)),
        of_calls(4, 2, 2, (2, 2)),
        of_calls(5, 2, 3, (2, 1)),
    ];
    [of_messages(), of_changes(), calls].concat()
}

/// Returns a shortest way to a failure in any scenario.
fn shortest(rules: Rules, wanted: fn(&Failure) -> bool) -> Option<Found> {
    let mut best: Option<Found> = None;
    for scenario in scenarios() {
        let most = best.as_ref().map_or(LONGEST, |found| found.steps.len() - 1);
        if let Some((steps, failure)) = explore(rules, &scenario, most, wanted).found {
            best = Some(Found {
                rules,
                scenario,
                steps,
                failure,
            });
        }
    }
    best
}

impl Found {
    /// Returns the way as the document shows it.
    fn lines(&self) -> Vec<String> {
        let [client, server] = self.scenario.each_ref().map(|plan| plan.shown(self.rules));
        let mut lines = vec![format!("client: {client}"), format!("server: {server}")];
        lines.push(String::new());
        for (at, (what, pair)) in self.steps.iter().take(SHOWN).enumerate() {
            let [client, server] = &pair.ends;
            lines.push(format!(
                "{:2}  {what:<44} {:>3}/{}  {:>3}/{}",
                at + 1,
                client.peer.sent,
                client.peer.limit,
                server.peer.sent,
                server.peer.limit
            ));
        }
        lines.push(format!("    {}", self.failure));
        lines
    }
}

/// Without any one of the rules something goes wrong, and the document shows the shortest way.
#[test]
fn each_rule_is_needed() {
    for (without, example, wanted) in CASES {
        let found = shortest(Rules { without }, wanted);
        let found = found.unwrap_or_else(|| panic!("{example}: nothing goes wrong"));
        let lines = found.lines();
        println!("without {example}:\n{}\n", lines.join("\n"));
        document::check(DOCUMENT, example, &lines);
    }
}

/// With one Receive less than two more than Calls of the server, a client can make both stand
/// still, whatever rules there are.
#[test]
fn calls_of_the_server_need_receives() {
    let rules = Rules { without: &[] };
    for (receives, back) in [(2, (1, 1)), (3, (2, 2))] {
        let scenario = of_calls(receives, 2, 2, back);
        let explored = explore(rules, &scenario, LONGEST, Failure::is_wait);
        let (steps, failure) = explored.found.expect("it stands still");
        let found = Found {
            rules,
            scenario,
            steps,
            failure,
        };
        if receives == 2 {
            document::check(DOCUMENT, "rule 17", &found.lines());
        }
    }
}

/// With all rules nothing goes wrong, nor if either the client or the server follows its own. With
/// all of them the peers do what the module's code does.
#[test]
fn the_rules_are_enough() {
    let mut lines = vec![];
    let all = [
        scenarios(),
        from_the_start([of_messages(), of_changes()].concat()),
    ]
    .concat();
    for without in ENOUGH {
        let mut states = 0;
        for scenario in &all {
            let explored = explore(Rules { without }, scenario, usize::MAX, Failure::is_any);
            assert!(
                explored.found.is_none(),
                "{scenario:?} fails without {without:?}"
            );
            states += explored.states;
        }
        let what = match without {
            [] => "with all rules".to_string(),
            _ => {
                let numbers: Vec<_> = without.iter().map(|rule| rule.number()).collect();
                format!("without {}", numbers.join(" and "))
            }
        };
        lines.push(format!("{what:<24} {states:>8} states, no failure"));
    }
    lines.push(format!("{} configurations each", all.len()));
    document::check(DOCUMENT, "states", &lines);
}
