//! How writes are posted: by several threads, and at a limited rate.

use crate::runs::good_document;

#[test]
fn the_data_of_all_threads_of_both_ends_is_right() {
    for list in ["1", "16"] {
        let options = format!("-b -q 8 --threads 4 -s 64,4K -l {list} -n 200 --validate");
        let document = good_document("write-bw", &options);
        assert_eq!(document["plan"]["threads"], 4);
        for result in document["results"].as_array().unwrap() {
            assert_eq!(
                (&result["iterations"], &result["wrong_bytes"]),
                (&1600.into(), &0.into()),
                "{result}"
            );
        }
    }
}

#[test]
fn no_round_is_above_a_rate_limit() {
    let document =
        good_document("write-bw", "-q 4 --threads 2 -s 4K -l 4 -n 100 --rate-limit 0.001Mpps --validate");
    for round in document["rounds"].as_array().unwrap() {
        let number = |name: &str| round[name].as_f64().unwrap();
        assert!(number("messages") * 1e9 / number("elapsed_ns") <= 1000.1, "{round}");
    }
    assert_eq!(document["results"][0]["wrong_bytes"], 0);
}
