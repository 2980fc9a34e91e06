//! Time, processor time, memory, counts by the second and quantiles.
use serde_json::{json, Value};
use std::sync::Mutex;
use std::time::Instant;

pub struct Begun {
    pub at: Instant,
    cpu: f64,
}

impl Begun {
    pub fn now() -> Self {
        Self { at: Instant::now(), cpu: usage().0 }
    }

    pub fn measured(&self, jobs: usize) -> Value {
        let seconds = self.at.elapsed().as_secs_f64();
        let (cpu, peak) = usage();
        json!({ "jobs": jobs, "seconds": seconds, "cpuSeconds": cpu - self.cpu, "peakBytes": peak })
    }
}

/// Processor seconds and peak resident bytes of this process.
fn usage() -> (f64, i64) {
    // SAFETY: getrusage fills the struct it is given; an all-zero rusage is a valid value.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    (seconds(usage.ru_utime) + seconds(usage.ru_stime), usage.ru_maxrss * 1024)
}

/// Jobs that are enqueued before the clock starts.
pub fn warm_up(jobs: usize) -> usize {
    (jobs / 2).min(100)
}

/// Counts by the second.
pub struct Timeline {
    begun: Instant,
    counts: Mutex<Vec<usize>>,
}

impl Timeline {
    pub fn since(begun: Instant) -> Self {
        Self { begun, counts: Mutex::new(Vec::new()) }
    }

    pub fn count(&self) {
        let second = self.begun.elapsed().as_secs() as usize;
        let mut counts = self.counts.lock().expect("a count never panics");
        if counts.len() <= second {
            counts.resize(second + 1, 0);
        }
        counts[second] += 1;
    }

    pub fn counts(&self) -> Vec<usize> {
        self.counts.lock().expect("a count never panics").clone()
    }
}

pub fn quantiles(mut millis: Vec<f64>) -> Value {
    millis.sort_by(f64::total_cmp);
    let last = millis.len().saturating_sub(1);
    let at = |q: f64| millis.get(last.min((q * millis.len() as f64) as usize)).copied();
    json!({ "samples": millis.len(), "p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "max": at(1.0) })
}
