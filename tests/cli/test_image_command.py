"""`joulecast image` as a user meets it."""

import json

IMAGE = ("image", "pixart_sigma", "--gpu", "H100 SXM", "--steps", 5)


def test_it_prints_parts_and_totals(printed):
    out = printed(*IMAGE)
    for shown in ("pixart_sigma, 1024 x 1024", "t5_xxl", "denoiser", "per image", "10.8 GB of weights"):
        assert shown in out


def test_json_has_what_the_library_answers(printed):
    value = json.loads(printed(*IMAGE, "--json"))
    assert value["steps"] == 5
    assert value["energy_per_image_j"] > 5 * value["denoise"]["energy_j"]


def test_videos_have_frames(printed):
    out = printed("image", "wan_2_1_1_3b", "--gpu", "H100 SXM", "--frames", 5, "--steps", 2)
    assert "832 x 480, 5 frames" in out
    assert "per video" in out
