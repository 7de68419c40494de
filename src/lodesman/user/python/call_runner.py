"""Runs one call of a function on a worker node: `call.pkl` says which, `result.pkl` gets what it returns or raises.

It travels as a file, with cloudpickle beside it, and needs Python 3.9 alone.
"""

import os
import pickle
import sys
import traceback


def main() -> int:
    """Returns 0 if the function returned, 1 if it raised, 3 if this Python cannot read it."""
    sys.path.insert(0, os.path.abspath("cloudpickle.zip"))
    # Modules that the job takes along are found as at home.
    sys.path.insert(1, os.getcwd())
    import cloudpickle

    with open("call.pkl", "rb") as file:
        call = pickle.load(file)
    if tuple(call["python"]) != sys.version_info[:2]:
        here, origin = (".".join(map(str, version)) for version in (sys.version_info[:2], call["python"]))
        print(
            f"lodesman: the function was made by Python {origin}, and {sys.executable} is {here}: "
            "name another one by using(python=...)",
            file=sys.stderr,
        )
        return 3
    index = int(os.environ.get("LODE_ARRAY_INDEX") or 0)
    try:
        function = pickle.loads(call["function"])
        arguments, named = pickle.loads(call["arguments"][index])
        answer = cloudpickle.dumps((True, function(*arguments, **named), ""))
        good = True
    except BaseException as fault:
        text = traceback.format_exc()
        sys.stderr.write(text)
        try:
            answer = cloudpickle.dumps((False, fault, text))
            pickle.loads(answer)
        except Exception:
            # What cannot travel, or be read again, arrives as its words, if it has any.
            words = traceback.format_exception_only(type(fault), fault)[-1].strip()
            answer = cloudpickle.dumps((False, RuntimeError(words), text))
        good = False
    with open("result.pkl", "wb") as file:
        file.write(answer)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
