"""What users of the openai package see. Run by clients_test.go; the environment says where and as whom."""

import os
import time
import unittest
import uuid

import openai

URL, OTHER_URL, MODEL = os.environ["URL"], os.environ["OTHER_URL"], os.environ["MODEL"]
KEYS = {name: os.environ["KEY_" + name.upper()] for name in ("acme", "other", "limited")}


def client(who="acme", key=None, retries=0, url=URL):
    return openai.OpenAI(base_url=url, api_key=key or KEYS[who], max_retries=retries, timeout=30)


def words(n):
    return "".join(f" w{i}" for i in range(n))


class Completions(unittest.TestCase):
    def test_a_whole_completion(self):
        a = client().completions.create(model=MODEL, prompt="Hello", max_tokens=5, temperature=0)
        self.assertEqual(a.choices[0].text.split(), words(5).split())
        self.assertEqual(a.choices[0].finish_reason, "length")
        self.assertEqual(a.usage.completion_tokens, 5)

    def test_a_streamed_completion(self):
        stream = client().completions.create(model=MODEL, prompt="Hello", max_tokens=7, temperature=0, stream=True)
        self.assertEqual("".join(c.choices[0].text for c in stream if c.choices).split(), words(7).split())

    def test_a_chat(self):
        a = client().chat.completions.create(model=MODEL, messages=[{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}], max_tokens=4)
        self.assertEqual(a.choices[0].message.content.split(), words(4).split())
        self.assertEqual(a.choices[0].message.role, "assistant")

    def test_a_streamed_chat_with_usage(self):
        stream = client().chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hi"}], max_completion_tokens=6, stream=True,
                                                  stream_options={"include_usage": True})
        text, usage, finish = "", None, None
        for c in stream:
            if c.choices:
                text += c.choices[0].delta.content or ""
                finish = c.choices[0].finish_reason or finish
            usage = c.usage or usage
        self.assertEqual((text.split(), usage.completion_tokens, finish), (words(6).split(), 6, "length"))

    def test_models(self):
        self.assertIn(MODEL, [m.id for m in client().models.list()])
        self.assertEqual(client().models.retrieve(MODEL).id, MODEL)

    def test_a_client_that_leaves_in_the_middle(self):
        with client().completions.create(model=MODEL, prompt="Hello", max_tokens=500, stream=True) as stream:
            next(iter(stream))


class Keys(unittest.TestCase):
    def test_one_key_is_one_handoff(self):
        header = {"Idempotency-Key": str(uuid.uuid4())}
        ask = dict(model=MODEL, prompt="Once", max_tokens=5, temperature=0, extra_headers=header)
        first = client().completions.with_raw_response.create(**ask)
        again = client().completions.with_raw_response.create(**ask)
        self.assertEqual(first.headers["x-surehand-handoff"], again.headers["x-surehand-handoff"])
        self.assertEqual(again.headers["x-surehand-joined"], "true")
        self.assertEqual(first.parse().choices[0].text, again.parse().choices[0].text)

    def test_another_body_under_the_key_is_a_conflict(self):
        header = {"Idempotency-Key": str(uuid.uuid4())}
        client().completions.create(model=MODEL, prompt="Once", max_tokens=5, extra_headers=header)
        with self.assertRaises(openai.ConflictError) as e:
            client().completions.create(model=MODEL, prompt="Twice", max_tokens=5, extra_headers=header)
        self.assertEqual(e.exception.code, "key_reused")

    def test_a_key_of_another_tenant_is_another_key(self):
        header = {"Idempotency-Key": str(uuid.uuid4())}
        ask = dict(model=MODEL, prompt="Mine", max_tokens=5, extra_headers=header)
        ids = {client(who).completions.with_raw_response.create(**ask).headers["x-surehand-handoff"] for who in ("acme", "other")}
        self.assertEqual(len(ids), 2)


class Errors(unittest.TestCase):
    def ask(self, who="acme", key=None, **change):
        ask = dict(model=MODEL, prompt="Hello", max_tokens=3)
        ask.update(change)
        return client(who, key).completions.create(**ask)

    def test_no_such_key(self):
        with self.assertRaises(openai.AuthenticationError) as e:
            self.ask(key="sk-nobody")
        self.assertEqual((e.exception.status_code, e.exception.code), (401, "invalid_api_key"))

    def test_no_such_model(self):
        with self.assertRaises(openai.NotFoundError):
            self.ask(model="nobody")

    def test_a_bad_parameter_is_named(self):
        for name, value in {"temperature": 9, "max_tokens": 0, "n": 2, "logit_bias": {"1": 2}}.items():
            with self.assertRaises(openai.BadRequestError) as e:
                self.ask(**{name: value})
            self.assertEqual(e.exception.param, name)

    def test_tools_are_refused_where_the_engine_has_none(self):
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
        with self.assertRaises(openai.BadRequestError) as e:
            client().chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hi"}], tools=[tool])
        self.assertEqual(e.exception.param, "tools")

    def test_another_tenant_is_not_to_be_claimed(self):
        with self.assertRaises(openai.PermissionDeniedError):
            self.ask(extra_headers={"X-Surehand-Tenant": "other"})

    def test_too_long_a_prompt_names_the_limit(self):
        with self.assertRaises(openai.APIStatusError) as e:
            self.ask("limited", prompt="x" * 101)
        self.assertEqual(e.exception.status_code, 413)

    def test_a_quota_says_when_to_come_again(self):
        with self.assertRaises(openai.RateLimitError) as e:
            for _ in range(4):
                self.ask("limited")
        self.assertEqual((e.exception.status_code, e.exception.code), (429, "rate_limit_exceeded"))
        self.assertGreaterEqual(int(e.exception.response.headers["retry-after"]), 1)

    def test_a_deadline_is_a_timeout_of_the_gateway(self):
        with self.assertRaises(openai.InternalServerError) as e:
            self.ask(prompt="x" * 8000, extra_headers={"X-Surehand-Deadline-Ms": "1000"})
        self.assertEqual((e.exception.status_code, e.exception.code), (504, "deadline"))


class Responses(unittest.TestCase):
    def test_a_background_response_is_fetched_later(self):
        r = client().responses.create(model=MODEL, input="Later", background=True, max_output_tokens=20)
        self.assertIn(r.status, ("queued", "in_progress"))
        until = time.monotonic() + 30
        while r.status in ("queued", "in_progress") and time.monotonic() < until:
            time.sleep(0.05)
            r = client().responses.retrieve(r.id)
        # Cut at its limit, which OpenAI calls incomplete.
        self.assertEqual((r.status, r.incomplete_details.reason, r.output_text.split()), ("incomplete", "max_output_tokens", words(20).split()))
        with self.assertRaises(openai.NotFoundError):
            client("other").responses.retrieve(r.id)

    def test_a_background_response_is_cancelled(self):
        r = client().responses.create(model=MODEL, input="Never", background=True, max_output_tokens=2000)
        with self.assertRaises(openai.NotFoundError):
            client("other").responses.cancel(r.id)
        client().responses.cancel(r.id)
        until = time.monotonic() + 30
        while r.status in ("queued", "in_progress") and time.monotonic() < until:
            time.sleep(0.05)
            r = client().responses.retrieve(r.id)
        self.assertEqual(r.status, "cancelled")

    def test_a_streamed_response(self):
        events = list(client().responses.create(model=MODEL, input="Now", max_output_tokens=6, stream=True))
        kinds = [e.type for e in events]
        self.assertEqual(kinds[:4] + kinds[-4:], ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
                                                  "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.incomplete"])
        deltas = "".join(e.delta for e in events if e.type == "response.output_text.delta")
        self.assertEqual(deltas.split(), words(6).split())
        self.assertEqual((events[-1].response.output_text, events[-1].response.usage.output_tokens), (deltas, 6))
        numbers = [e.sequence_number for e in events]
        self.assertEqual(numbers, sorted(set(numbers)))

    def test_the_helper_that_gathers_a_stream(self):
        with client().responses.stream(model=MODEL, input="Now", max_output_tokens=4) as stream:
            events = list(stream)
        text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
        self.assertEqual(text.split(), words(4).split())
        self.assertEqual([e.snapshot for e in events if e.type == "response.output_text.delta"][-1], text)  # what the helper gathered
        self.assertEqual((events[-1].type, events[-1].response.output_text), ("response.incomplete", text))

    def test_a_background_stream_goes_on_where_its_client_left(self):
        seen, text = None, ""
        with client().responses.create(model=MODEL, input="Long", max_output_tokens=60, background=True, stream=True) as stream:
            for e in stream:
                seen = e.sequence_number
                if e.type == "response.created":
                    rid = e.response.id
                if e.type == "response.output_text.delta":
                    text += e.delta
                    if len(text.split()) == 7:
                        break
        for e in client(url=OTHER_URL).responses.retrieve(rid, stream=True, starting_after=seen):  # at the other gateway
            self.assertGreater(e.sequence_number, seen)
            seen = e.sequence_number
            if e.type == "response.output_text.delta":
                text += e.delta
        self.assertEqual((text.split(), e.type, e.response.output_text), (words(60).split(), "response.incomplete", text))
        with self.assertRaises(openai.NotFoundError):
            client("other").responses.retrieve(rid, stream=True)

    def test_a_response_at_once(self):
        r = client().responses.create(model=MODEL, input="Now", max_output_tokens=4)
        self.assertEqual((r.status, r.incomplete_details.reason, r.output_text.split()), ("incomplete", "max_output_tokens", words(4).split()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
