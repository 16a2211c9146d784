//! Faults as they happen: each counts what it is about, and strikes when its time has come.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::{Call, DeviceDescription, Effect, FaultDescription, Site, When};
use crate::errno::{Errno, Result};

/// The faults of a device.
pub(crate) struct Faults {
    armed: Vec<Armed>,
    /// For offsets that nobody has named.
    random: Random,
}

struct Armed {
    description: FaultDescription,
    seen: AtomicU64,
    random: Random,
}

/// Numbers that look random and are the same in each run: xorshift64* (Vigna, "An experimental exploration of
/// Marsaglia's xorshift generators, scrambled", 2016).
struct Random(AtomicU64);

impl Random {
    fn new(seed: u64, stream: u64) -> Self {
        // Never 0, which would stay 0; the multiplier is that of splitmix64, to set neighbouring seeds apart.
        Self(AtomicU64::new(seed.wrapping_add(stream + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1))
    }

    fn next(&self) -> u64 {
        let step = |mut x: u64| {
            x ^= x >> 12;
            x ^= x << 25;
            x ^ (x >> 27)
        };
        let update = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |x| Some(step(x)));
        step(update.unwrap_or(1)).wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// From 0 to 1, without 1.
    fn fraction(&self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl Armed {
    /// Counts one more time, and tells whether it strikes.
    fn strikes(&self) -> bool {
        let time = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        match self.description.when {
            When::Once(number) => time == number,
            When::From(number) => time >= number,
            When::Chance(chance) => self.random.fraction() < chance,
            When::After(_) => false,
        }
    }
}

impl Faults {
    pub(crate) fn of(device: &DeviceDescription) -> Self {
        let arm = |(stream, description): (u64, &FaultDescription)| Armed {
            description: description.clone(),
            seen: AtomicU64::new(0),
            random: Random::new(device.seed, stream),
        };
        let armed = (1..).zip(&device.faults).map(arm).collect();
        Self { armed, random: Random::new(device.seed, 0) }
    }

    fn about(&self, site: Site) -> impl Iterator<Item = &Armed> {
        self.armed.iter().filter(move |armed| armed.description.site == site)
    }

    /// Whether there is one about `site`.
    pub(crate) fn has(&self, site: Site) -> bool {
        self.about(site).next().is_some()
    }

    /// Counts a call.
    ///
    /// # Errors
    /// That with which it is to fail.
    pub(crate) fn call(&self, call: Call) -> Result<()> {
        // All of them count, also behind one that strikes.
        let mut failure = Ok(());
        for armed in self.about(Site::Call(call)) {
            if let (true, Effect::Errno(errno)) = (armed.strikes(), armed.description.effect) {
                failure = failure.and(Err(Errno(errno)));
            }
        }
        failure
    }

    /// Counts a request of the queue pair that was made as the `qp`-th: what is to become of it.
    pub(crate) fn send(&self, qp: u32) -> Option<Effect> {
        let mut effect = None;
        for armed in
            self.about(Site::Send).filter(|armed| armed.description.qp.is_none_or(|about| about == qp))
        {
            if armed.strikes() {
                effect = effect.or(Some(armed.description.effect));
            }
        }
        effect
    }

    /// Counts a request on the port: what is to become of that.
    pub(crate) fn port(&self) -> Option<Effect> {
        let mut effect = None;
        for armed in self.about(Site::Port) {
            if armed.strikes() {
                effect = effect.or(Some(armed.description.effect));
            }
        }
        effect
    }

    /// The faults of the port that come at a time, not with a request.
    pub(crate) fn timed(&self) -> impl Iterator<Item = &FaultDescription> {
        let timed = |armed: &&Armed| matches!(armed.description.when, When::After(_));
        self.armed.iter().filter(timed).map(|armed| &armed.description)
    }

    /// The byte of a message of `len` that arrives changed.
    pub(crate) fn offset(&self, named: Option<u64>, len: u64) -> u64 {
        named.map_or_else(|| self.random.next() % len.max(1), |offset| offset.min(len.saturating_sub(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Description;

    fn faults(text: &str) -> Faults {
        let mut device = Description::default().devices.remove(0);
        device.faults = text.split(' ').map(|text| FaultDescription::parse(text).unwrap()).collect();
        Faults::of(&device)
    }

    #[test]
    fn a_fault_strikes_once_or_from_its_time_on() {
        let faults = faults("reg_mr@2:ENOMEM reg_mr@4+:EFAULT create_qp@1:EIO");
        let results: Vec<_> = (0..5).map(|_| faults.call(Call::RegMr).err().map(|errno| errno.0)).collect();
        assert_eq!(results, [None, Some(libc::ENOMEM), None, Some(libc::EFAULT), Some(libc::EFAULT)]);
        assert_eq!(faults.call(Call::CreateQp), Err(Errno(libc::EIO)));
        assert_eq!(faults.call(Call::AllocPd), Ok(()));
    }

    #[test]
    fn a_queue_pairs_own_requests_are_counted() {
        let faults = faults("send/1@2:lost send@5:corrupt=3");
        let strikes: Vec<_> = [0, 1, 0, 1, 0, 1].map(|qp| faults.send(qp)).into();
        assert_eq!(strikes, [None, None, None, Some(Effect::Lost), Some(Effect::Corrupt(Some(3))), None]);
    }

    #[test]
    fn chance_is_the_same_in_each_run_and_about_as_often_as_it_says() {
        let run = || {
            let faults = faults("send~0.25:lost");
            (0..10_000).filter(|_| faults.send(0).is_some()).count()
        };
        assert_eq!(run(), run());
        // 2500 ± 43 by the binomial distribution; ten times that.
        assert!((2070..2930).contains(&run()), "{}", run());
    }

    #[test]
    fn an_offset_lies_in_the_message() {
        let faults = faults("send~1:corrupt");
        assert!((0..100).all(|_| faults.offset(None, 7) < 7));
        assert_eq!((faults.offset(Some(3), 7), faults.offset(Some(9), 7), faults.offset(None, 0)), (3, 6, 0));
    }
}
