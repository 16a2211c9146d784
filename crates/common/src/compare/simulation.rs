//! How often the judgement is wrong, by simulation: the figures that `docs/measuring.md` states.

use super::{Comparison, Goal, Order, Verdict};

const TRIALS: u32 = 1000;
/// The scatter of a round.
const SIGMA: f64 = 0.01;
const THRESHOLD: f64 = 0.01;

/// A small generator (splitmix64), so that the figures are the same on each run.
struct Dice(u64);

impl Dice {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Normally scattered around 0 with standard deviation 1 (Box and Muller).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// What disturbs the rounds besides their scatter, by the position of the run in the sitting (0 to 1).
type Disturbance = fn(&mut Dice, f64) -> f64;

fn nothing(_: &mut Dice, _: f64) -> f64 {
    0.0
}

/// 3 % up over the sitting.
fn drifting(_: &mut Dice, position: f64) -> f64 {
    0.03 * position
}

/// One run in ten loses 10 %.
fn spikes(dice: &mut Dice, _: f64) -> f64 {
    if dice.uniform() < 0.1 { 0.9_f64.ln() } else { 0.0 }
}

/// Which arm each run of a sitting is of.
fn abba(rounds: usize) -> Vec<bool> {
    [false, true, true, false].into_iter().cycle().take(2 * rounds).collect()
}

fn blocked(rounds: usize) -> Vec<bool> {
    (0..2 * rounds).map(|run| run >= rounds).collect()
}

/// The share of sittings that end with "better" or "worse" though B is `change` away from A, in per cent.
fn alarms(order: &[bool], change: f64, disturbance: Disturbance) -> f64 {
    let mut dice = Dice(20_261_129);
    let mut alarms = 0;
    for _ in 0..TRIALS {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for (run, &is_b) in order.iter().enumerate() {
            let position = run as f64 / order.len() as f64;
            let log = SIGMA * dice.normal() + disturbance(&mut dice, position);
            if is_b { b.push((log + change).exp()) } else { a.push(log.exp()) }
        }
        let comparison = Comparison::between(&a, &b, Order::InTurn, Goal::Higher, THRESHOLD).unwrap();
        alarms += u32::from(matches!(comparison.verdict, Verdict::Better | Verdict::Worse));
    }
    f64::from(alarms) / f64::from(TRIALS) * 100.0
}

#[test]
fn arms_that_are_alike_are_called_different_in_less_than_5_of_100_sittings() {
    for (name, disturbance) in
        [("steady", nothing as Disturbance), ("drifting", drifting), ("spikes", spikes)]
    {
        for rounds in [4, 5, 6, 8, 10] {
            let share = alarms(&abba(rounds), 0.0, disturbance);
            assert!(share <= 5.0, "{name}, {rounds} rounds: {share} %");
        }
    }
}

#[test]
fn a_change_of_three_times_the_scatter_is_found_in_more_than_80_of_100_sittings() {
    for rounds in [6, 8, 10] {
        let steady = alarms(&abba(rounds), 0.03, nothing);
        assert!(steady >= 80.0, "{rounds} rounds: {steady} %");
        let drifting = alarms(&abba(rounds), 0.03, drifting);
        assert!(drifting >= 80.0, "{rounds} rounds, drifting: {drifting} %");
    }
}

#[test]
fn arms_run_one_after_the_other_invent_differences_and_more_rounds_do_not_help() {
    // What is passed off as taken in turn here; the order that says so gets no verdict at all.
    let few = alarms(&blocked(6), 0.0, drifting);
    let many = alarms(&blocked(10), 0.0, drifting);
    assert!(few > 20.0 && many > few, "{few} %, {many} %");
}
