//! A real directory and a real database beside a simple model of both, through thousands of steps.
//!
//! `CODEX_EDGE_MODEL_STEPS` sets how many steps each theme takes; a divergence is told as the
//! shortest story that leads to it.

mod driver;
mod model;
mod story;

use proptest::{
    prelude::*,
    test_runner::{TestCaseError, TestError, TestRunner},
};

use self::{
    driver::{Driver, Seen},
    model::Model,
    story::{Story, Theme, story},
};

/// Steps of one story at most.
const STEPS: usize = 200;

/// Steps of one theme, half of it on average.
const STEPS_OF_THEME: usize = 5_000;

fn tell(Story(ops): Story) -> Result<(), TestCaseError> {
    let (mut driver, mut model) = (Driver::new(), Model::default());
    for (op, number) in ops.iter().zip(1..) {
        driver.step(op, &model);
        model.step(op);
        let (seen, expected) = (driver.seen(), Seen::expected(&model));
        prop_assert!(
            seen == expected,
            "after step {number} ({op})\n  there is   {seen:?}\n  instead of {expected:?}"
        );
    }
    Ok(())
}

fn run(theme: Theme) {
    let wanted = std::env::var("CODEX_EDGE_MODEL_STEPS").ok().and_then(|it| it.parse().ok());
    let steps: usize = wanted.unwrap_or(STEPS_OF_THEME);
    let config = ProptestConfig {
        cases: u32::try_from(steps / STEPS).unwrap().max(1),
        max_shrink_iters: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    match TestRunner::new(config).run(&story(theme, STEPS), tell) {
        Ok(()) => {}
        Err(TestError::Fail(why, story)) => panic!("{why}\nThe story:{story:?}"),
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}

#[test]
fn the_pool_and_its_rows_follow_the_files_whatever_happens() {
    run(Theme::Everything);
}

#[test]
fn two_people_of_one_workspace_are_never_mixed_up() {
    run(Theme::Seats);
}

#[test]
fn a_directory_in_disorder_loses_nothing_that_may_come_back() {
    run(Theme::Faults);
}

#[test]
fn a_restart_takes_up_where_the_last_process_ended() {
    run(Theme::Restarts);
}
