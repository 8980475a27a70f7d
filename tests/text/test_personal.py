"""Personal data: places against plain definitions, precision and recall of a labelled sample, policies, the ledger."""

import ipaddress
import itertools
import json
import random
import re
import time
from pathlib import Path

import personal_data as benchmark
import pyarrow as pa
import pytest
from datasets import Dataset
from hypothesis import assume, example, given
from hypothesis import strategies as st

import longcrawl as lc
from longcrawl.core.places import replay
from longcrawl.errors import LedgerError, StageError
from longcrawl.run.recipe import parse_recipe
from longcrawl.text import personal as personal_data

TEXT = "Für Fragen: jo.doe@mail.example.org, (212) 555-0187, 5.9.1.2, 4111 1111 1111 1111, DE89 3704 0044 0532 0130 00."


def found(text, *kinds, **settings):
    """Return what is found in a text, kind and value."""
    tagged = lc.text.PersonalData("tag", kinds=kinds or tuple(personal_data.KINDS), **settings)(
        pa.table({"text": [text]})
    )
    return [(each["kind"], text[each["start"] : each["end"]]) for each in tagged["personal_data"][0].as_py()]


# -------------------- what is found


def test_every_kind_is_replaced_by_its_word():
    made = lc.text.PersonalData()(pa.table({"text": [TEXT, None, ""]}))["text"].to_pylist()
    assert made == ["Für Fragen: [EMAIL], [PHONE], [IP], [CARD], [IBAN].", None, ""]


WANTED = {"email": (0.99, 0.9), "phone": (0.97, 0.9), "ip": (0.75, 1.0), "card": (0.97, 1.0), "iban": (1.0, 1.0)}


@pytest.mark.parametrize("marks", ["plain", "typeset"])
def test_precision_and_recall_of_a_labelled_sample(marks):
    sample = benchmark.labelled(random.Random(7), 400)
    texts, truth = [text for text, _ in sample], [places for _, places in sample]
    if marks == "typeset":
        texts = [benchmark.typeset(random.Random(1), text) for text in texts]
    measured = benchmark.scores(truth, benchmark.found_by_us(texts))
    assert measured.keys() == WANTED.keys()
    for kind, (precision, recall) in measured.items():
        assert precision >= WANTED[kind][0], (kind, precision, recall)
        assert recall >= WANTED[kind][1], (kind, precision, recall)


FILES = set("png jpg jpeg gif svg webp css js html htm php pdf zip avif bmp ico tif tiff".split())  # noqa: SIM905


OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
DOTTED = rf"(?:{OCTET}\.){{3}}{OCTET}(?![A-Za-z0-9])(?![.,-][0-9])"
HOST_BY_NUMBER = re.compile(rf"{DOTTED}|\[{DOTTED}\]")


def naive_emails(text):
    reached, places = 0, []
    for at in (match.start() for match in re.finditer("@", text)):
        local = re.search(r"[A-Za-z0-9._%+'-]*$", text[reached:at])[0].rsplit("..")[-1]
        local = re.sub(r"^[^A-Za-z0-9_]+", "", local)
        if at >= reached and local and not local.endswith(".") and (host := HOST_BY_NUMBER.match(text, at + 1)):
            places.append((at - len(local), host.end()))
            reached = host.end()
            continue
        labels = re.match(r"[A-Za-z0-9.-]*", text[at + 1 :])[0].split(".") if at >= reached else []
        stop, length = 0, 0
        for number, label in enumerate(labels):
            bare = label.rstrip("-")
            last = number == len(labels) - 1
            if number and re.fullmatch("[A-Za-z]{2,24}", bare if last else label) and label.lower() not in FILES:
                stop = at + 1 + length + len(bare if last else label)
            if not label or label[0] == "-" or label[-1] == "-":
                break
            length += len(label) + 1
        if local and not local.endswith(".") and stop:
            places.append((at - len(local), stop))
            reached = stop
    return places


words = st.sampled_from(
    ["a", "jo", "Z9", ".", "..", "-", "+", "'", "@", "org", "png", "x", " ", ",", "é", "9", "_", "5.9.1.2", "[", "]"]
)


@given(st.lists(words, max_size=16))
@example(["a", "@", "x", ".", "org", "@", "x", ".", "org"])
@example(["a", "@", "x", ".", "org", "-"])
@example(["_", "jo", "_", "@", "x", ".", "org", "_"])
@example(["jo", "@", "5.9.1.2", ".", " ", "_", "@", "[", "5.9.1.2", "]", "a", "@", "5.9.1.2", "x"])
def test_mail_addresses_are_those_of_a_plain_definition(parts):
    text = "".join(parts)
    assert found(text, "email") == [("email", text[start:stop]) for start, stop in naive_emails(text)]


def is_public(address):
    ip = ipaddress.ip_address(address)
    protocols = ip.version == 4 and ip in ipaddress.ip_network("192.0.0.0/24")  # of which Pythons think differently
    return ip.is_global and not ip.is_multicast and not protocols


def naive_ips(text):
    octet = r"(?:0|[1-9]\d{0,2})"
    pattern = rf"(?<![A-Za-z0-9])(?<!\d[.,-])(?:{octet}\.){{3}}{octet}(?![A-Za-z0-9])(?![.,-]\d)"
    values = (match[0] for match in re.finditer(pattern, text, re.ASCII))
    return [value for value in values if all(int(part) < 256 for part in value.split(".")) and is_public(value)]


numbers = st.sampled_from(["5", "10", "192", "168", "172", "16", "100", "64", "255", "256", "0", "01", "1234", "198"])


@given(st.lists(numbers | st.sampled_from([".", ".", ".", " ", "-", ",", "a", "é", "/"]), max_size=24))
@example(["5", ".", "5", ".", "5", ".", "5", ".", "5"])
def test_addresses_of_ip_are_public_ones_as_the_standard_library_has_it(parts):
    text = "".join(parts)
    assert [value for _, value in found(text, "ip")] == naive_ips(text)


@given(st.ip_addresses(v=4) | st.ip_addresses(v=6, network="2a00::/12") | st.ip_addresses(v=6, network="fc00::/7"))
@example(ipaddress.ip_address("2001:db8::1"))
@example(ipaddress.ip_address("2001:4860:4860::8888"))
@example(ipaddress.ip_address("fe80::1"))
@example(ipaddress.ip_address("::1"))
def test_any_spelling_of_an_address_of_ip_is_found_where_it_is_public(address):
    assume(address.version == 4 or len([group for group in str(address).split(":") if group]) > 1)  # no 2021::
    for spelled in (str(address), address.exploded, str(address).upper()):
        text = f"from {spelled}, and on"
        assert found(text, "ip") == ([("ip", spelled)] if is_public(str(address)) else [])


WRITTEN = {
    "fe80::1ff:fe23:4567:890a fe80::9%eth0.": "fe80::1ff:fe23:4567:890a fe80::9%eth0",
    "ff02::fb, fd00::1!": "ff02::fb fd00::1",
    "[::1]:8080, ::1 and (::1) but not x[::1] or x[:, ::1] or ::2": "::1 ::1 ::1",
    "http://[2001:db8::1]:80/ mail.example.org[2001:db8::7a]": "2001:db8::1 2001:db8::7a",
    "2001:db8::/32, fe80::/10, fe80::1/64 but not fc00:: or 2001::": "2001:db8:: fe80:: fe80::1",
    "::ffff:192.0.2.1 ::ffff:c000:201 64:ff9b::192.0.2.33": "::ffff:192.0.2.1 ::ffff:c000:201 64:ff9b::192.0.2.33",
    "2001:db8::1,2001:db8::2 and 2001:db8::3-2001:db8::4": "2001:db8::1 2001:db8::2 2001:db8::3 2001:db8::4",
    "2001:0DB8:0000:0000:0000:FF00:0042:8329 2001:db8:1:2:3:4:192.0.2.1": (
        "2001:0DB8:0000:0000:0000:FF00:0042:8329 2001:db8:1:2:3:4:192.0.2.1"
    ),
}
NO_ADDRESSES = [
    "std::vector A::f Face::cafe add::bee dead::beef feed::fade a::b::c ::add ab::cd() $A::b @A::a use Foo::Bar::2000;",
    "a::before { } x[::2] x[::-1] x[1::2] x[2000::2] 10:20::30 12:30:45 16:9 1::2 :: 1:: 7::",
    "00:1a:2b:3c:4d:5e 00:11:22:33:44:55:66:77 ab:cd:ef:01:23:45:67:89:ab deadbeef:cafe 1:2:3:4:5:6:7:8",
    "xfe80::1 _fe80::1 fe80::1x fe80::1_ 2001:db8::1::2 2001:db8:::1 2001:db8::12345 2001:db8::1.5 1.2001:db8::1",
]


@pytest.mark.parametrize("text", WRITTEN)
def test_addresses_of_ipv6_are_found_as_people_write_them(text):
    assert " ".join(value for _, value in found(text, "ip", ips="all")) == WRITTEN[text]
    assert [value for _, value in found(text, "ip", ips="all", ipv6="ignore") if "::" in value] == []


@pytest.mark.parametrize("text", NO_ADDRESSES)
@pytest.mark.parametrize("ips", ["public", "all"])
def test_names_around_colons_times_and_slices_are_no_addresses(text, ips):
    assert found(text, "ip", ips=ips) == []


ASSIGNED = [ipaddress.ip_network(each) for each in ("2000::/3", "fc00::/7", "fe80::/10", "ff00::/8", "64:ff9b::/32")]
RESERVED = [ipaddress.ip_network(each) for each in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")]


def is_written_address(text, start, stop):
    written = text[start:stop]
    groups = [group for group in written.split(":") if group]
    count = len(groups) + ("." in written)
    ip = ipaddress.ip_address(written)
    if "::" not in written:
        return any(len(group) > 2 for group in groups)
    if written.startswith("::"):
        is_known = written == "::1" or groups[0].lower() == "ffff" or "." in groups[0]
        is_known = is_known and (count > 1 or written == "::1") and count <= 4
    else:
        is_network = re.match("/[0-9]", text[stop:]) is not None
        is_known = any(ip in network for network in ASSIGNED) and (count > 1 or is_network)
    named = re.search(r"[A-Za-z0-9_)\]]\[$", text[:start]) is not None
    last = written.startswith("::") and text[stop : stop + 1] == "]" and text[:start][-1:] != "["
    is_slice = count <= 2 and not re.search("[A-Za-z]", written) and (named or last)
    return is_known and not is_slice


def naive_ipv6(text, *, every):
    places = []
    for match in re.finditer("[A-Za-z0-9_:.]+", text):
        for size in range(len(match[0]), 2, -1):
            stop = match.start() + size
            try:
                ip = ipaddress.IPv6Address(text[match.start() : stop])
            except ValueError:
                continue
            tail = re.search(r"[0-9.]*$", match[0][:size])[0] if "." in match[0][:size] else ""
            break
        else:
            continue
        if not is_written_address(text, match.start(), stop):
            continue
        if any(ip in ipaddress.ip_network(each) for each in ("fe80::/10", "ff00::/8")):
            zone = re.match(r"%[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,14}[A-Za-z0-9])?", text[stop:])
            stop += len(zone[0]) if zone else 0
        ends = re.match(r"[A-Za-z0-9_]|:[A-Za-z0-9_:]|\.[0-9]", text[stop:]) or (
            tail and re.match("[.,-][0-9]", text[stop:])
        )
        of_four = tail and (match[0].startswith("::") or ip in ipaddress.ip_network("64:ff9b::/32"))
        public = is_public(tail) if of_four else ip in ASSIGNED[0] and not any(ip in each for each in RESERVED)
        if not ends and (every or public):
            places.append(text[match.start() : stop])
    return places


PARTS = (
    "2001 db8 fe80 ff02 fc00 64 ff9b ffff 2a00 3fff 0 1 20 a Face std x _ : : : :: :: . [ ] ( / , - %eth0 %20 "
    "192.0.2.1 5.9.1.2 5.9.1 é"
)
colons = st.sampled_from([" ", " ", *PARTS.split()])


@given(st.lists(colons, max_size=12), st.booleans())
@example(["2001", ":", "db8", "::", "1", ".", " ", "2a00", "::", "5.9.1.2", ":"], False)
@example(["::", "5.9.1.2", " ", "::", "192.0.2.1", "::", "ffff", ":", "5.9.1.2"], False)
@example(["fe80", "::", "1", "%eth0", "-", ".", "[", "::", "1", "]", ":", "20"], True)
def test_addresses_of_ipv6_are_those_of_a_plain_definition(parts, every):
    text = "".join(parts)
    values = [value for _, value in found(text, "ip", ips="all" if every else "public") if ":" in value]
    assert values == naive_ipv6(text, every=every)


def test_all_addresses_of_ip_are_found_where_that_is_asked_for():
    text = "192.168.1.1 and fe80::1, not 1.2.3.4.5, std::vector, 12:30:45, version 1.2.3.4 or 300.1.1.1"
    assert [value for _, value in found(text, "ip", ips="all")] == ["192.168.1.1", "fe80::1"]


def luhn_is_right(digits):
    doubled = [int(digit) * (1 + at % 2) for at, digit in enumerate(reversed(digits))]
    return sum(sum(divmod(value, 10)) for value in doubled) % 10 == 0


@given(st.integers(0, 2**31), st.integers(0, 18), st.integers(0, 9))
def test_a_card_with_one_other_digit_is_found_only_where_its_sum_is_right(seed, place, digit):
    number = benchmark.card(random.Random(seed))
    place = 4 + place % (len(number) - 4)  # the first four say whose card it is
    other = number[:place] + str(digit) + number[place + 1 :]
    shown = benchmark.grouped(other, 4, " -\u00a0\u2011"[seed % 4]) if len(other) == 16 else other
    assert found(f"card {shown}.", "card") == ([("card", shown)] if luhn_is_right(other) else [])


@given(st.integers(0, 2**31), st.integers(0, 30), st.sampled_from("0123456789ABXYZ"))
def test_an_account_with_one_other_letter_is_found_only_where_its_rest_is_one(seed, place, letter):
    number = benchmark.account(random.Random(seed))
    place = 2 + place % (len(number) - 2)
    other = number[:place] + letter + number[place + 1 :]
    digits = "".join(str(int(each, 36)) for each in other[4:] + other[:4])
    right = other[2:4].isdigit() and int(digits) % 97 == 1
    for shown in (other, *(benchmark.grouped(other, 4, mark) for mark in " \u00a0\u202f")):
        assert found(f"to {shown}, please", "iban") == ([("iban", shown)] if right else [])


PHONES = {
    "+49 30 1234567, +1 (212) 555-1234 and +442079460018": ["+49 30 1234567", "+1 (212) 555-1234", "+442079460018"],
    "1-800-555-1234 or 212.555.1234": ["1-800-555-1234", "212.555.1234"],
    "212 555 1234 people; phone 212 555 1234": ["212 555 1234"],
    "room 020 7946 0018; Tel: 020 7946 0018\nand 030 1234567": ["020 7946 0018"],
    "Tel.: 0049 30 1234567 (+33) 1 23 45 67 89 (+49 30 1234567) (+49 (0)30 1234567)": [
        "0049 30 1234567",
        "(+33) 1 23 45 67 89",
        "+49 30 1234567",
        "+49 (0)30 1234567",
    ],
    "tel.\u00a0+33\u00a01\u00a023\u202f45\u200967 89": ["+33\u00a01\u00a023\u202f45\u200967 89"],
    "212\u2011555\u20101234 (212)\u00a0555\u20131234": ["212\u2011555\u20101234", "(212)\u00a0555\u20131234"],
    "212\u2011555\u20111234\u20115, 5\u2011212\u2011555\u20111234, 212\u00a0555\u00a01234": [],
    "2019-12-24, ISBN 978-3-16-148410-0, 212-555-1234-5, $212-555-1234, a+49 30 1234567, +12, 111-555-1234": [],
}


@pytest.mark.parametrize("text", PHONES)
def test_phones_are_told_by_their_form_or_a_word_before(text):
    numbers = [value for _, value in found(text, "phone")]
    assert numbers == PHONES[text]


AMERICAN = re.compile(r"(?:^|(?<=[\0- \u00a0]))\(?[0-9]{3}\)?[ .-]*[0-9]{3}[ .-]?[0-9]{4}(?![0-9])")


@given(
    st.lists(
        st.sampled_from(["212", "555", "0187", "2125550187", "1", " ", "-", ".", "(", ")", "\n", "\u00a0", "a", "+49"])
    )
)
@example(["(", "212", ")", " ", "-", "555", ".", "0187", " ", "2125550187", "-", "1"])
@example(["212", "-", "555", "-", "-", "0187", "\n", "212", "555", " ", "0187", "1"])
def test_american_phones_are_those_of_a_plain_pattern(parts):
    text = "".join(parts)
    plain = text.replace("\u00a0", " ")
    wanted = [text[match.start() : match.end()] for match in AMERICAN.finditer(plain)]
    assert [value for _, value in found(text, "phone", phones="american")] == wanted


SPACES, HYPHENS = "\u00a0\u2007\u2009\u200a\u202f", "\u2010\u2011\u2012\u2013"
PLAIN = str.maketrans(dict.fromkeys(SPACES, " ") | dict.fromkeys(HYPHENS, "-"))
GROUPS = "4111 1111 4111111111111111 DE89 3704 0044 0532 0130 00 0 1 212 555 0187 + ( ) tel 3782 822463 10005 a é . 33"
pieces = st.sampled_from(GROUPS.split())


@given(st.lists(st.tuples(pieces, st.sampled_from(["", " ", "-", *SPACES, *HYPHENS])), max_size=12))
@example([(group, "\u00a0") for group in ("4111", "1111", "1111", "1111")])
@example([("3782", "\u2011"), ("822463", "\u2011"), ("10005", "\u2013"), ("1", "")])
@example([(group, "\u202f") for group in ("DE89", "3704", "0044", "0532", "0130", "00")])
@example([("1", "\u2011"), ("212", "\u2011"), ("555", "\u2011"), ("0187", "")])
def test_typographic_marks_are_as_plain_ones(parts):
    text = "".join(itertools.chain(*parts))
    kinds = ("phone", "card", "iban")
    tagged = lc.text.PersonalData("tag", kinds=kinds)(pa.table({"text": [text, text.translate(PLAIN)]}))
    ours, plain = tagged["personal_data"].to_pylist()
    assert ours == plain


@pytest.mark.variants
@pytest.mark.parametrize(
    "unit",
    [
        "1\u2011",
        "4111\u00a0",
        "tel\u00a00",
        "(+1",
        "@",
        "a@",
        "1",
        "1-",
        "12.",
        "+1 ",
        "a.",
        "::",
        "a:",
        "(0",
        "tel 0",
        "4111 ",
    ],
)
def test_time_grows_with_the_length(unit):
    stage, seconds = lc.text.PersonalData(), []
    for size in (50_000, 200_000):
        table = pa.table({"text": [unit * (size // len(unit))]})
        began = time.process_time()
        stage.trace(table)
        seconds.append(time.process_time() - began)
    assert seconds[1] < 8 * seconds[0] + 0.1


# -------------------- policies and the ledger


def crawl_of(*texts):
    return lc.Crawl(Dataset.from_dict({"id": [f"d{row}" for row in range(len(texts))], "text": list(texts)}))


def test_the_ledger_has_kind_and_place_and_never_the_value():
    crawl = crawl_of(TEXT, "nothing here") | lc.text.PersonalData(kinds=["email", "iban"])
    email, iban = crawl.why("d0").edits
    assert (email.rule, TEXT[email.start : email.end]) == ("email", "jo.doe@mail.example.org")
    assert (iban.rule, iban.replaced_by) == ("iban", len("[IBAN]"))
    assert "jo.doe" not in str(crawl.edits.to_pylist()) + str(crawl.why("d0")) + str(crawl.funnel)
    assert "1 edited" in str(crawl.funnel)
    with pytest.raises(LedgerError, match="replaced characters 12-35 with 7 others"):
        replay(TEXT, crawl.edits)


def test_tags_leave_texts_alone_and_drop_removes_documents():
    crawl = crawl_of(TEXT, "nothing here") | lc.text.PersonalData("tag")
    assert crawl.data["text"][0] == TEXT
    assert [each["kind"] for each in crawl.data["personal_data"][0]] == ["email", "phone", "ip", "card", "iban"]
    assert replay(TEXT, crawl.edits) == TEXT
    assert "personal_data tagged 5 places: tag_email 12-35" in str(crawl.why("d0"))
    assert "1 tagged" in str(crawl.funnel)
    dropped = crawl_of(TEXT, "nothing here") | lc.text.PersonalData("drop")
    assert dropped.data["id"][:] == ["d1"]
    assert "removed at personal_data, rule max_found: 5 against 0" in str(dropped.why("d0"))


def test_presets_have_the_words_and_bounds_of_their_sources():
    texts = [TEXT, "a@b.org " * 6]
    fineweb = crawl_of(*texts) | lc.text.PersonalData.preset("fineweb")
    assert fineweb.data["text"][0].startswith("Für Fragen: email@example.com, (212) 555-0187, 192.0.2.1, 4111")
    dolma = crawl_of(*texts) | lc.text.PersonalData.preset("dolma")
    (text,) = dolma.data["text"][:]
    assert text.startswith("Für Fragen: |||EMAIL_ADDRESS|||, |||PHONE_NUMBER|||, |||IP_ADDRESS|||, 4111 1111")
    assert dolma.funnel.rows[0].rules == {"max_found": 1}
    others = "+49 30 1234567, 2001:4860:4860::8888, A::f; B::b; C::c; D::d; E::e; F::f; 4111 1111 1111 1111"
    for preset in ("fineweb", "dolma"):
        assert (crawl_of(others) | lc.text.PersonalData.preset(preset)).data["text"][:] == [others]
    with pytest.raises(StageError, match="unknown preset 'c4'; known: fineweb, dolma"):
        lc.text.PersonalData.preset("c4")


WRONG = [
    (
        {"kinds": ["name"]},
        r"kinds takes some of email, phone, ip, card, iban, each once, got \['name'\]",
    ),
    ({"kinds": []}, "each once, got"),
    ({"kinds": ["ip", "ip"]}, "each once, got"),
    ({"replacements": ["x"]}, r"personal_data\.replacements has 1 entries for 5 kinds: one each"),
    ({"max_found": -1}, r"personal_data\.max_found must be 0 or more, got -1"),
]


@pytest.mark.parametrize(("fields", "sentence"), WRONG)
def test_what_is_wrong_is_one_sentence(fields, sentence):
    with pytest.raises(StageError, match=sentence):
        lc.text.PersonalData(**fields)


def test_masks_of_others_are_not_shifted():
    masked = pa.table({"text": [TEXT], "masked": [[{"start": 0, "end": 1}]]})
    with pytest.raises(StageError, match="would shift what 'masked' points to"):
        lc.text.PersonalData()(masked)
    assert lc.text.PersonalData("tag")(masked)["masked"].to_pylist() == [[{"start": 0, "end": 1}]]


def test_batches_and_offsets_do_not_matter():
    texts = [text for text, _ in benchmark.labelled(random.Random(3), 60)] + ["", TEXT]
    table = pa.table({"text": pa.array(texts, pa.string())})
    stage = lc.text.PersonalData()
    whole = stage(table)["text"].to_pylist()
    for size in (1, 7):
        pieces = [stage(table.slice(at, size))["text"].to_pylist() for at in range(0, len(texts), size)]
        assert list(itertools.chain(*pieces)) == whole


def test_a_text_is_explained_with_marks():
    explanation = lc.text.explain(TEXT, lc.text.PersonalData("drop"))
    assert "jo.doe@mail.example.org" in str(explanation)
    assert explanation.verdict == "leaves"


def test_a_card_says_what_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in (TEXT, "nothing")))
    spec = {
        "longcrawl": 1,
        "name": "masked",
        "source": {"builder": "text", "data_files": "texts.jsonl"},
        "stages": [{"personal_data": {"preset": "dolma"}}],
        "outputs": {"parquet": {}},
    }
    lc.run(parse_recipe(spec), "run")
    card = Path("run/README.md").read_text()
    assert "`personal_data` looked for email, phone, ip: 3 places replaced. Names and postal addresses were" in card
    assert "personal data (replaced by a word) by `personal_data`" in card
