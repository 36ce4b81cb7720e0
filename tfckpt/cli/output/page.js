const field = document.getElementById("find"), count = document.getElementById("found");
if (field) {
  const values = [...document.querySelectorAll(".value")];
  const branches = [...document.querySelectorAll(".tree details")];
  const initiallyOpen = branches.map((branch) => branch.open);
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let matches = 0;
    for (const value of values) {
      const text = value.dataset.find;
      value.hidden = !words.every((word) => text.includes(word));
      value.style.display = value.hidden ? "none" : "";
      matches += !value.hidden;
    }
    branches.forEach((branch, index) => {
      const matching = [...branch.querySelectorAll(".value")].some((value) => !value.hidden);
      branch.parentElement.style.display = matching ? "" : "none";
      branch.open = words.length ? matching : initiallyOpen[index];
    });
    count.textContent = words.length ? `${matches} of ${values.length}` : "";
  });
}
