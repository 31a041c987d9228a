//! `docs/lifecycle.md` is drawn from the machines of `domain`, so the picture cannot say anything that the code does not.

use entity::states::{JobState, LineageState};
use holdfast::domain::{job, lineage};
use std::fmt::{Debug, Display, Write};
use std::{env, fs, path::Path};

const HEAD: &str = "\
# Lives

Drawn from `src/domain/job.rs` and `src/domain/lineage.rs` by `tests/lifecycle.rs`, which fails when the picture and the machines
differ; `UPDATE_SNAPSHOTS=1 cargo test lifecycle` draws it again. What an event means is said at its name in those files.
";

/// One machine, as far as a picture needs it.
struct Machine<S> {
    title: &'static str,
    first: S,
    states: Vec<S>,
    arrows: Vec<(S, String, S)>,
    finals: Vec<S>,
}

/// An event as a label; mermaid ends a label at a colon.
fn label(event: &impl Debug) -> String {
    format!("{event:?}").replace(" { succeeded: true }", " (succeeded)").replace(" { succeeded: false }", " (failed)")
}

impl<S: Copy + PartialEq + Display> Machine<S> {
    fn draw(&self) -> String {
        let mut text = format!("\n## {}\n\n```mermaid\nstateDiagram-v2\n    [*] --> {}\n", self.title, self.first);
        for (from, event, to) in &self.arrows {
            writeln!(text, "    {from} --> {to}: {event}").unwrap();
        }
        let entered = |state: &S| *state == self.first || self.arrows.iter().any(|(_, _, to)| to == state);
        for end in self.finals.iter().filter(|end| entered(end)) {
            writeln!(text, "    {end} --> [*]").unwrap();
        }
        text.push_str("```\n");
        let idle: Vec<String> = self.states.iter().filter(|state| !entered(state)).map(|state| format!("`{state}`")).collect();
        if !idle.is_empty() {
            writeln!(text, "\nNothing leads yet to {}.", idle.join(", ")).unwrap();
        }
        text
    }
}

fn jobs() -> Machine<JobState> {
    let states = JobState::all();
    let mut arrows = Vec::new();
    for from in &states {
        for event in job::Event::ALL {
            if let Ok(transition) = job::next(*from, event) {
                arrows.push((*from, label(&event), transition.to));
            }
        }
    }
    let finals = states.iter().copied().filter(|state| state.is_final()).collect();
    Machine { title: "Job", first: JobState::Queued, states, arrows, finals }
}

fn lineages() -> Machine<LineageState> {
    let states = LineageState::all();
    let mut arrows = Vec::new();
    for from in &states {
        for event in lineage::Event::ALL {
            if let Ok(transition) = lineage::next(*from, event) {
                arrows.push((*from, label(&event), transition.to));
            }
        }
    }
    let finals = states.iter().copied().filter(|state| state.is_final()).collect();
    Machine { title: "Lineage", first: LineageState::Allocated, states, arrows, finals }
}

#[test]
fn the_diagram_is_the_machines() {
    let drawn = format!("{HEAD}{}{}", jobs().draw(), lineages().draw());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/lifecycle.md");
    if env::var_os("UPDATE_SNAPSHOTS").is_some_and(|value| value == "1") {
        fs::write(&file, &drawn).unwrap();
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(kept, drawn, "draw it again: UPDATE_SNAPSHOTS=1 cargo test lifecycle");
}
