"""A few things that everybody knows, as questions with one right answer, to see whether a model knows anything."""

from __future__ import annotations

FACTS: tuple[tuple[str, str, tuple[str, str, str]], ...] = (
    ("The capital of France is", "Paris", ("Rome", "Cairo", "Lima")),
    ("The capital of Japan is", "Tokyo", ("Berlin", "Oslo", "Dublin")),
    ("The capital of Italy is", "Rome", ("Madrid", "Tokyo", "Ottawa")),
    ("The capital of Egypt is", "Cairo", ("London", "Lisbon", "Delhi")),
    ("The capital of England is", "London", ("Athens", "Paris", "Moscow")),
    ("The color of fresh snow is", "white", ("green", "purple", "red")),
    ("The color of grass is", "green", ("pink", "black", "orange")),
    ("The opposite of hot is", "cold", ("tall", "loud", "sweet")),
    ("The opposite of up is", "down", ("round", "early", "soft")),
    ("The opposite of night is", "day", ("door", "sand", "song")),
    ("A week has seven", "days", ("wheels", "rivers", "letters")),
    ("A year has twelve", "months", ("tigers", "winters", "hours")),
    ("An hour has sixty", "minutes", ("weeks", "miles", "coins")),
    ("The day after Monday is", "Tuesday", ("Sunday", "Friday", "Saturday")),
    ("The month after June is", "July", ("March", "January", "October")),
    ("Bees make", "honey", ("paper", "steel", "bread")),
    ("Cows give", "milk", ("wool", "ink", "glass")),
    ("Fish live in the", "water", ("desert", "sky", "attic")),
    ("The Earth goes around the", "Sun", ("Moon", "clock", "equator")),
    ("Ice is frozen", "water", ("sand", "iron", "wood")),
    ("A baby dog is called a", "puppy", ("kitten", "chick", "calf")),
    ("A baby cat is called a", "kitten", ("puppy", "lamb", "foal")),
    ("Two plus two is", "four", ("nine", "one", "seven")),
    ("Ten minus one is", "nine", ("twelve", "two", "five")),
    ("A triangle has three", "sides", ("wings", "colors", "names")),
    ("A spider has eight", "legs", ("tails", "ears", "beaks")),
    ("We see with our", "eyes", ("elbows", "teeth", "knees")),
    ("We hear with our", "ears", ("feet", "hair", "ribs")),
    ("The first president of the United States was George", "Washington", ("Lincoln", "Columbus", "Churchill")),
    ("The author of Hamlet is William", "Shakespeare", ("Dickens", "Mozart", "Newton")),
    ("The largest ocean is the", "Pacific", ("Baltic", "Arctic", "Caspian")),
    ("The Sun rises in the", "east", ("west", "north", "cellar")),
)
"""How a sentence begins, the word that ends it, and three that do not."""
